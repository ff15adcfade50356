"""`aliquot run`: a command confined to a slice of a card, with no Kubernetes."""

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click

from aliquot import names
from aliquot.cli.arbitrate import Arbitration
from aliquot.cli.fit import Wish, fit
from aliquot.cli.machine import Machine, real_machine
from aliquot.cli.options import Memory, Percent, Refusal, refuse_inside, simulate_option
from aliquot.cli.overhead import follow
from aliquot.cli.runs import Holding, Registry
from aliquot.cli.supervise import CommandError, supervise
from aliquot.core_policy import HIGHEST_PRIORITY, CoreMode, CorePolicy, problem_of_limit, problem_of_mode
from libshim.library import library_path


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--mem", type=Memory(), help="Memory of the slice, such as 2Gi. Default: the same percentage as --core."
)
@click.option(
    "--core", type=Percent(), help="Percent of the card's compute time, 1 to 100. Default: no share."
)
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
@click.option("--card", metavar="UUID|INDEX", help="The card. Default: the fullest one with room.")
@simulate_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(
    *,
    mem: int | None,
    core: int | None,
    mode: str | None,
    core_limit: int | None,
    priority: int | None,
    card: str | None,
    simulate: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND confined to a slice of a card.

    Exit status: the command's own, 128 + n when signal n killed it, 125 when there is no slice to give,
    126 or 127 when the command cannot be started.
    """
    policy = CorePolicy(CoreMode(mode) if mode else None, core_limit, priority)
    wish = _wish(mem, core, card, policy)
    if not command:
        raise click.UsageError(
            "no command to run; write it after --, as in: aliquot run --mem 2Gi -- python train.py"
        )
    refuse_inside("a slice cannot be sliced again")
    machine = _simulated() if simulate else real_machine()
    sys.exit(_run(machine, wish, command))


def _wish(mem: int | None, core: int | None, card: str | None, policy: CorePolicy) -> Wish:
    if mem is None and core is None:
        raise click.UsageError("say how much: --mem 2Gi, --core 30, or both")
    if mem == 0:
        raise click.BadParameter(
            "0 is no slice; write how much the command may use, such as 2Gi", param_hint="'--mem'"
        )
    _check(policy, core or 0)
    return Wish(mem, core, card, policy)


def _check(policy: CorePolicy, cores: int) -> None:
    """Refuses what a pod's annotations are refused for, in the same words."""
    mode, limit = policy.mode, policy.limit_percent
    if mode and (problem := problem_of_mode(mode, cores, asked_by="--core")):
        raise click.BadParameter(problem, param_hint="'--mode'")
    if limit and (problem := problem_of_limit(limit, mode, cores, asked_by="--core")):
        raise click.BadParameter(problem, param_hint="'--core-limit'")


def _simulated() -> Machine:
    from aliquot.cli.simulate import simulated_machine

    return simulated_machine()


def _run(machine: Machine, wish: Wish, command: tuple[str, ...]) -> int:
    registry = Registry(machine.home)
    arbitration = Arbitration(registry)
    with registry.locked():
        share = fit(wish, machine.cards, [run.slice for run in registry.runs()])
        holding = registry.add(share, command)
    try:
        return supervise(
            command,
            confined_environment(os.environ, machine, holding),
            keep=[holding.alive],
            started=lambda: _accompany(holding, registry, arbitration),
            stopped=arbitration.set_aside,
        )
    except CommandError as error:
        click.echo(f"aliquot run: {error}", err=True)
        return error.status
    finally:
        arbitration.end()
        registry.release(holding)


def _accompany(holding: Holding, registry: Registry, arbitration: Arbitration) -> None:
    """What goes on beside the command, in threads."""
    follow(holding, partial(registry.learn_context, holding.run.slice.card))
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
    library = library_path()
    if not library.exists():
        raise Refusal(f"{library} is not built; run `python setup.py build_ext --inplace`")
    if not set(str(library)) & {" ", ":"}:
        return library
    link = holding.directory / library.name
    link.symlink_to(library)
    return link
