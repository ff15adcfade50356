"""`aliquot cards`: the cards of this machine and who holds slices of them."""

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import msgspec

from aliquot.cli.fit import room_on
from aliquot.cli.machine import Card, Machine, real_machine
from aliquot.cli.options import simulate_option
from aliquot.cli.runs import Registry, Run, living_processes
from aliquot.core_policy import CoreMode
from aliquot.units import format_bytes
from libshim.usage_page import Usage

HEADINGS = ("pid", "memory", "used", "core", "command")


class SliceReport(msgspec.Struct, frozen=True, rename="camel"):
    """A run's slice; sizes in bytes, times in nanoseconds, None where the usage page cannot be believed."""

    run: str
    pid: int | None
    """The `aliquot run` that supervises it; None when that was killed."""
    processes: tuple[int, ...]
    """Its processes that use the card."""
    command: tuple[str, ...]
    memory_bytes: int
    core_percent: int
    core_mode: CoreMode
    core_most_percent: int
    """What it may have of the time when others leave it theirs."""
    priority: int
    used_bytes: int | None
    denied_allocations: int | None
    busy_ns: int | None


class CardReport(msgspec.Struct, frozen=True, rename="camel"):
    """A card, what is promised of it and to whom; sizes in bytes."""

    index: int
    uuid: str
    model: str
    memory_bytes: int
    used_bytes: int
    promised_bytes: int
    mig_enabled: bool
    slices: tuple[SliceReport, ...]


class Report(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    cards: tuple[CardReport, ...]


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of a table; sizes in bytes."
)
@simulate_option
def cards(as_json: bool, simulate: bool) -> None:
    """List cards and the slices of them that runs hold."""
    report = describe(_simulated() if simulate else real_machine())
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for card in report.cards:
        for line in _lines(card):
            click.echo(line[:width])


def _simulated() -> Machine:
    from aliquot.cli.simulate import simulated_machine

    return simulated_machine()


def describe(machine: Machine) -> Report:
    """Every card with the slices that live at this moment."""
    registry = Registry(machine.home)
    with registry.locked():
        runs = [_Seen(run, registry.usage(run), registry.in_use_bytes(run)) for run in registry.runs()]
    return Report(tuple(_describe_card(card, runs) for card in machine.cards))


@dataclass(frozen=True)
class _Seen:
    """A run as it was found."""

    run: Run
    usage: Usage | None
    used_bytes: int | None


def _describe_card(card: Card, runs: Sequence[_Seen]) -> CardReport:
    room = room_on(card, [seen.run.slice for seen in runs])
    return CardReport(
        index=card.index,
        uuid=card.uuid,
        model=card.model,
        memory_bytes=card.memory_bytes,
        used_bytes=card.used_bytes,
        promised_bytes=card.memory_bytes - room.memory_bytes,
        mig_enabled=card.mig_enabled,
        slices=tuple(_describe_slice(seen) for seen in runs if seen.run.slice.card == card.uuid),
    )


def _describe_slice(seen: _Seen) -> SliceReport:
    run, usage = seen.run, seen.usage
    told, terms = usage.cards[0] if usage else None, run.slice.core_terms
    return SliceReport(
        run=run.id,
        pid=run.pid if run.supervised() else None,
        processes=living_processes(usage) if usage else (),
        command=run.command,
        memory_bytes=run.slice.memory_bytes,
        core_percent=run.slice.core_percent,
        core_mode=terms.mode,
        core_most_percent=terms.most_percent,
        priority=terms.priority,
        used_bytes=seen.used_bytes,
        denied_allocations=told.allocations_denied if told else None,
        busy_ns=told.busy_ns if told else None,
    )


def _lines(card: CardReport) -> Iterator[str]:
    """A card's two lines, and below them a table of its slices; wide things stand last on their line."""
    yield f"card {card.index}  {card.model}  {card.uuid}"
    size = format_bytes(card.memory_bytes)
    promised = (
        "in MIG mode" if card.mig_enabled else f"{format_bytes(card.promised_bytes)} of {size} promised"
    )
    yield f"  {promised}, {format_bytes(card.used_bytes)} used"
    if card.slices:
        rows = [HEADINGS, *map(_row, card.slices)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "    " + "  ".join(map(str.ljust, row, widths)).rstrip()


def _row(share: SliceReport) -> tuple[str, ...]:
    pids = [share.pid] if share.pid is not None else share.processes
    return (
        " ".join(map(str, pids)) or "?",
        format_bytes(share.memory_bytes),
        "?" if share.used_bytes is None else format_bytes(share.used_bytes),
        _core(share),
        _one_line(shlex.join(share.command)),
    )


def _core(share: SliceReport) -> str:
    if share.core_mode is CoreMode.BURST:
        return f"{share.core_percent} to {share.core_most_percent} %"
    return f"{share.core_percent} %" if share.core_percent else "no cap"


def _one_line(text: str) -> str:
    """The text without what would move the cursor; runs of blanks become one."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
