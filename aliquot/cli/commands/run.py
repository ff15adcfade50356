"""`aliquot run`: a command confined to a slice of a card, with no Kubernetes."""

import io
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click

from aliquot.api import names
from aliquot.cli.display.amounts import Core, CoreAmount, Memory, MemoryAmount
from aliquot.cli.display.wording import core as core_words
from aliquot.cli.display.wording import size
from aliquot.cli.options import Percent, Refusal, refuse_inside, simulate_option
from aliquot.cli.runs.arbiter_election import ArbiterElection
from aliquot.cli.runs.card_choice import Wish, fit
from aliquot.cli.runs.card_usage import survey
from aliquot.cli.runs.claims import Claims
from aliquot.cli.runs.environment_limits import EnvironmentLimits, environment_limits, reconciled
from aliquot.cli.runs.machine import Machine, real_machine
from aliquot.cli.runs.overhead import follow
from aliquot.cli.runs.registry import Holding, Registry, Run
from aliquot.cli.runs.supervise import CommandError, supervise
from aliquot.cli.runs.visible_devices import refuse_hidden, visible
from aliquot.libshim.library import library_path
from aliquot.request.core_policy import (
    HIGHEST_PRIORITY,
    CoreMode,
    CorePolicy,
    problem_of_limit,
    problem_of_mode,
)
from aliquot.request.pod_request import ManagedMemory


def _print_library(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(preloadable(library_path()))
        ctx.exit()


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--mem",
    type=Memory(),
    help="Memory of the slice, such as 2Gi, or 50% of the card. Default: the same percentage as --core.",
)
@click.option("--core", type=Core(), help="Percent of the card's compute time, 1 to 100. Default: no share.")
@click.option(
    "--mode",
    type=click.Choice([*map(str, CoreMode)]),
    help="capped: never more than --core. burst: also what others leave. uncapped, without --core: an equal part of "
    "what the shares leave, and what others leave. Default: capped with --core, uncapped without.",
)
@click.option(
    "--core-limit", type=Percent(), help="The most it may burst to, in percent; implies burst. Default: 100."
)
@click.option(
    "--priority",
    type=click.IntRange(0, HIGHEST_PRIORITY),
    help="The higher is let in first, and has first what nobody claims. Default: 0.",
)
@click.option(
    "--managed",
    type=click.Choice([*map(str, ManagedMemory)]),
    default=str(ManagedMemory.RESERVE),
    help="reserve: managed memory counts in full. resident: it may be larger than the slice, and counts as far as "
    "it may come to the card. Default: reserve.",
)
@click.option("--card", metavar="UUID|INDEX", help="The card. Default: the fullest one with room.")
@click.option(
    "--quiet",
    is_flag=True,
    help="Do not say on stderr which slice the command has, nor that it refused memory; as ALIQUOT_QUIET=1 does.",
)
@click.option(
    "--print-library",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_library,
    help="Print the interceptor's path, for LD_PRELOAD, and end.",
)
@simulate_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(
    *,
    mem: MemoryAmount | None,
    core: CoreAmount | None,
    mode: str | None,
    core_limit: int | None,
    priority: int | None,
    managed: str,
    card: str | None,
    quiet: bool,
    simulate: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND confined to a slice of a card.

    CUDA_VISIBLE_DEVICES says which cards it may be. Limits that are not given are those of CUDA_DEVICE_MEMORY_LIMIT
    and CUDA_DEVICE_SM_LIMIT, where these are set.

    Exit status: the command's own, 128 + n when signal n killed it, 125 when there is no slice to give,
    126 or 127 when the command cannot be started.
    """
    policy = CorePolicy(CoreMode(mode) if mode else None, core_limit, priority)
    asked = reconciled(environment_limits(os.environ), mem, core.value if core else None)
    wish = _wish(asked, card, policy, ManagedMemory(managed))
    if not command:
        raise click.UsageError(
            "no command to run; write it after --, as in: aliquot run --mem 2Gi -- python train.py"
        )
    refuse_inside("a slice cannot be sliced again")
    machine = _simulated() if simulate else real_machine()
    inherited = {**os.environ, names.QUIET_ENV: "1"} if quiet else os.environ
    sys.exit(_run(machine, wish, command, inherited))


def _wish(asked: EnvironmentLimits, card: str | None, policy: CorePolicy, managed: ManagedMemory) -> Wish:
    if asked.memory is None and asked.core_percent is None:
        raise click.UsageError("say how much: --mem 2Gi, --core 30, or both")
    if asked.memory and asked.memory.value == 0:
        raise click.BadParameter(
            "0 is no slice; write how much the command may use, such as 2Gi", param_hint="'--mem'"
        )
    _check(policy, asked.core_percent or 0)
    return Wish(asked.memory, asked.core_percent, card, policy, managed)


def _check(policy: CorePolicy, cores: int) -> None:
    """Refuses what a pod's annotations are refused for, in the same words."""
    mode, limit = policy.mode, policy.limit_percent
    if mode and (problem := problem_of_mode(mode, cores, asked_by="--core")):
        raise click.BadParameter(problem, param_hint="'--mode'")
    if limit and (problem := problem_of_limit(limit, mode, cores, asked_by="--core")):
        raise click.BadParameter(problem, param_hint="'--core-limit'")


def _simulated() -> Machine:
    from aliquot.cli.runs.simulate import simulated_machine

    return simulated_machine()


def _run(machine: Machine, wish: Wish, command: tuple[str, ...], inherited: Mapping[str, str]) -> int:
    registry = Registry(machine.home, Claims(machine.claims))
    arbitration = ArbiterElection(registry)
    holding = _take(registry, wish, command)
    if inherited.get(names.QUIET_ENV, "") in {"", "0"}:
        _say(f"aliquot: {_told(holding.run, wish.memory)}")
    try:
        return supervise(
            command,
            confined_environment(inherited, machine, holding),
            keep=holding.kept,
            started=lambda: _accompany(holding, registry, arbitration),
            stopped=arbitration.set_aside,
        )
    except CommandError as error:
        _say(f"aliquot run: {error}")
        return error.status
    finally:
        arbitration.end()
        registry.release(holding)


def _say(line: str) -> None:
    """A line on stderr, where that takes it: a command runs all the same beside a full disk."""
    try:
        click.echo(line, err=True)
    except OSError:
        sys.stderr = io.StringIO()  # the old one would be tried again at the end, and spoil the exit status


def _take(registry: Registry, wish: Wish, command: tuple[str, ...]) -> Holding:
    """Chooses a card and records the run, while no other command does."""
    with registry.locked(), registry.claims.locked():
        found = survey(registry)
        left = visible(found.cards, os.environ)
        refuse_hidden(wish.card, found.cards, left)
        share = fit(wish, left, found.taken)
        (card,) = (card for card in left if card.uuid == share.card)
        return registry.add(share, command, card.index, card.model)


def _told(run: Run, asked: MemoryAmount | None) -> str:
    """The one line that is said of a run: `run kx7f: card 0 (NVIDIA H200), 2Gi of memory, 30 % of its time`."""
    memory = f"{size(run.slice.memory_bytes)} of memory{asked.note if asked else ''}"
    share = core_words(run.slice)
    time = share if share == "uncapped" else f"{share} of its time"
    return f"run {run.id}: card {run.card_index} ({run.card_model}), {memory}, {time}"


def _accompany(holding: Holding, registry: Registry, arbitration: ArbiterElection) -> None:
    """What goes on beside the command, in threads."""
    follow(
        holding,
        learned=partial(registry.learn_context, holding.run.slice.card),
        looked=partial(registry.tell_use, holding),
    )
    arbitration.begin()


def confined_environment(inherited: Mapping[str, str], machine: Machine, holding: Holding) -> dict[str, str]:
    """The command's environment: one card, and our library first in LD_PRELOAD."""
    environment = {**inherited, **machine.environment}
    environment["LD_PRELOAD"] = _first(str(_library(holding)), inherited.get("LD_PRELOAD"))
    environment[names.CONTROL_ENV] = str(holding.control)
    environment[names.USAGE_ENV] = str(holding.usage)
    environment["CUDA_VISIBLE_DEVICES"] = holding.run.slice.card
    return environment


def _first(ours: str, theirs: str | None) -> str:
    return f"{ours}:{theirs}" if theirs else ours


def _library(holding: Holding) -> Path:
    """The interceptor; through a link where its path holds what LD_PRELOAD takes for a separator."""
    library = _built(library_path())
    if _can_be_preloaded(library):
        return library
    link = holding.directory / library.name
    link.symlink_to(library)
    return link


def preloadable(library: Path) -> Path:
    """The interceptor's path as LD_PRELOAD can hold it. Raises Refusal where it cannot."""
    if not _can_be_preloaded(_built(library)):
        raise Refusal(
            f"LD_PRELOAD cannot hold {library}: it takes blanks and colons for separators; make a link to it"
        )
    return library


def _built(library: Path) -> Path:
    if not library.exists():
        raise Refusal(f"{library} is not built; run `make native` in the checkout, or install the wheel anew")
    return library


def _can_be_preloaded(library: Path) -> bool:
    return not set(str(library)) & {" ", ":"}
