"""`aliquot resize`: other limits for a run that goes on."""

from collections.abc import Sequence

import click

from aliquot.cli.fit import Room, refit, room_on
from aliquot.cli.machine import Machine, real_machine
from aliquot.cli.options import Cap, Memory, Refusal, refuse_inside, simulate_option
from aliquot.cli.runs import Registry, Run, living_processes
from aliquot.cli.slices import Slice
from aliquot.units import format_bytes
from libshim.page_file import PageError


@click.command()
@click.option("--mem", type=Memory(), help="Memory it may use from now on, such as 4Gi. Default: as it is.")
@click.option(
    "--core", type=Cap(), help="Percent of the card's time, or none for no share. Default: as it is."
)
@simulate_option
@click.argument("name", metavar="RUN")
def resize(mem: int | None, core: int | None, simulate: bool, name: str) -> None:
    """Raise or lower the limits of a run that goes on.

    RUN is a pid that `aliquot cards` lists. A limit below what is in use is taken too: the run keeps what it has and
    gets no more until it uses less.
    """
    if mem is None and core is None:
        raise click.UsageError("say what to change: --mem 4Gi, --core 50, or both")
    if mem == 0:
        raise click.BadParameter(
            "0 is no slice; end the run instead, or write what it may use", param_hint="'--mem'"
        )
    refuse_inside("only from outside can it be given another size")
    for line in _resize(_simulated() if simulate else real_machine(), name, mem, core):
        click.echo(line)


def _simulated() -> Machine:
    from aliquot.cli.simulate import simulated_machine

    return simulated_machine()


def _resize(machine: Machine, name: str, mem: int | None, core: int | None) -> list[str]:
    registry = Registry(machine.home)
    with registry.locked():
        runs = registry.runs()
        run = _find(registry, runs, name)
        others = [one.slice for one in runs if one is not run]
        share = refit(run.slice, mem, core, _room(machine, run, others))
        try:
            registry.resize(run, share)
        except PageError as error:
            raise Refusal(f"run {name} keeps its limits: {error}; end it and start it anew") from error
        used = registry.in_use_bytes(run)
    return _said(name, run.slice, share, used or 0)


def _find(registry: Registry, runs: Sequence[Run], name: str) -> Run:
    """The run of a pid that `aliquot cards` shows, or of the id in its `--json`."""
    for run in runs:
        usage = registry.usage(run)
        if name in {run.id, str(run.pid) if run.supervised() else ""}:
            return run
        if usage and name in map(str, living_processes(usage)):
            return run
    known = ", ".join(str(run.pid) for run in runs if run.supervised())
    listed = f"there are {known}" if known else "none is running"
    raise Refusal(f"there is no run {name!r}; {listed} (see `aliquot cards`)")


def _room(machine: Machine, run: Run, others: Sequence[Slice]) -> Room:
    for card in machine.cards:
        if card.uuid == run.slice.card:
            return room_on(card, others)
    raise Refusal(
        f"card {run.slice.card} of this run does not answer; look at it with nvidia-smi and try again"
    )


def _said(name: str, before: Slice, now: Slice, used_bytes: int) -> list[str]:
    lines = [f"run {name}: {_limits(now)} (was {_limits(before)})"]
    if used_bytes > now.memory_bytes:
        lines.append(
            f"it uses {format_bytes(used_bytes)}, more than that: it keeps them, and gets no more until it uses less"
        )
    return lines


def _limits(share: Slice) -> str:
    core = f"{share.core_percent} %" if share.core_percent else "no cap"
    return f"{format_bytes(share.memory_bytes)}, {core}"
