"""`aliquot resize`: other limits for a run that goes on."""

import shlex
from collections.abc import Sequence
from typing import NoReturn

import click

from aliquot.cli.display.amounts import Core, CoreAmount, Memory, MemoryAmount
from aliquot.cli.display.wording import core as core_words
from aliquot.cli.display.wording import limits, one_line, size
from aliquot.cli.options import Refusal, refuse_inside, simulate_option
from aliquot.cli.runs.card_choice import Room, refit, room_on
from aliquot.cli.runs.card_usage import CardUsage, survey
from aliquot.cli.runs.claims import Claims
from aliquot.cli.runs.machine import Machine, real_machine, simulated_home
from aliquot.cli.runs.registry import Registry, Run, find
from aliquot.cli.runs.slices import Slice
from aliquot.libshim.page_file import PageError

LONGEST_COMMAND = 40


@click.command()
@click.option(
    "--mem",
    type=Memory(relative=True),
    help="Memory it may use from now on: 4Gi, 50% of the card, or +512Mi, -1Gi to change it. Default: as it is.",
)
@click.option(
    "--core",
    type=Core(relative=True),
    help="Percent of the card's time: 50, or +10, -10 to change it; none: no share. Default: as it is.",
)
@simulate_option
@click.argument("name", metavar="RUN")
def resize(mem: MemoryAmount | None, core: CoreAmount | None, simulate: bool, name: str) -> None:
    """Raise or lower the limits of a run that goes on.

    RUN is an id or a pid that `aliquot top` and `aliquot cards` show. A limit below what is in use is taken too: the
    run keeps what it has and gets no more until it uses less. Runs of the simulated machine are found without
    --simulate.
    """
    if mem is None and core is None:
        raise click.UsageError("say what to change: --mem 4Gi, --core 50, or both")
    if mem and mem.value == 0 and not mem.sign:
        raise click.BadParameter(
            "0 is no slice; end the run instead, or write what it may use", param_hint="'--mem'"
        )
    refuse_inside("only from outside can it be given another size")
    for line in _resize(_simulated() if simulate else _machine_of(name), name, mem, core):
        click.echo(line)


def _machine_of(name: str) -> Machine:
    """The simulated machine where the run is there, or where there is no other."""
    if _is_simulated(name):
        return _simulated()
    try:
        return real_machine()
    except Refusal:
        if not simulated_home().is_dir():
            raise
        return _simulated()


def _simulated() -> Machine:
    from aliquot.cli.runs.simulate import simulated_machine

    return simulated_machine()


def _is_simulated(name: str) -> bool:
    """Whether the simulated machine has a run of this name; it is not made for that."""
    home = simulated_home()
    if not home.is_dir():
        return False
    registry = Registry(home)
    with registry.locked():
        return bool(find(registry, registry.runs(), name))


def _resize(machine: Machine, name: str, mem: MemoryAmount | None, core: CoreAmount | None) -> list[str]:
    registry = Registry(machine.home, Claims(machine.claims))
    with registry.locked(), registry.claims.locked():
        found = survey(registry)
        run = find(registry, found.runs, name) or _refuse_unknown(name, found.runs)
        share = refit(run.slice, mem, core, _room(found, run))
        try:
            registry.resize(run, share)
        except PageError as error:
            raise Refusal(f"run {run.id} keeps its limits: {error}; end it and start it anew") from error
        used = registry.in_use_bytes(run)
    return _said(run, share, mem.note if mem else "", used or 0)


def _refuse_unknown(name: str, runs: Sequence[Run]) -> NoReturn:
    known = ", ".join(f"{run.id} ({one_line(shlex.join(run.command), LONGEST_COMMAND)})" for run in runs)
    listed = f"there are {known}" if known else "none of yours is running"
    raise Refusal(f"there is no run {name!r}; {listed} (see `aliquot cards`, and `aliquot cards --simulate`)")


def _room(found: CardUsage, run: Run) -> Room:
    for card in found.cards:
        if card.uuid == run.slice.card:
            return room_on(card, found.besides(run))
    raise Refusal(
        f"card {run.slice.card} of this run does not answer; look at it with nvidia-smi and try again"
    )


def _said(run: Run, now: Slice, note: str, used_bytes: int) -> list[str]:
    memory = f"{size(now.memory_bytes)}{note}"
    lines = [f"run {run.id}: {memory}, {core_words(now)} (was {limits(run.slice)})"]
    if used_bytes > now.memory_bytes:
        lines.append(
            f"it uses {size(used_bytes)}, more than that: it keeps them, and gets no more until it uses less"
        )
    return lines
