"""`aliquot cards`: the cards of this machine and who holds slices of them."""

import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import msgspec

from aliquot.cli.display.wording import one_line, pids, size, table
from aliquot.cli.options import refuse_inside, simulate_option
from aliquot.cli.runs.card_choice import room_on
from aliquot.cli.runs.card_usage import CardUsage, survey
from aliquot.cli.runs.claims import Claims
from aliquot.cli.runs.machine import Card, Machine, real_machine
from aliquot.cli.runs.registry import Registry, Run, processes_of
from aliquot.libshim.usage_page import Usage
from aliquot.request.core_policy import CoreMode
from aliquot.units import MIB

HEADINGS = ("id", "pid", "memory", "used", "core", "command")


class SliceReport(msgspec.Struct, frozen=True, rename="camel"):
    """A run's slice; sizes in bytes, times in nanoseconds, None where the usage page cannot be believed."""

    run: str
    pid: int | None
    """The `aliquot run` that supervises it; None when that was killed."""
    processes: tuple[int, ...]
    """Its processes that use the card; where `pid` is None and none does, all that are left of it."""
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
    """To this user's runs and to other users'."""
    others_bytes: int
    """Of that, to other users' runs."""
    outside_bytes: int
    """Used by programs that no run is known of."""
    free_bytes: int
    """The largest slice that a run can have."""
    free_core_percent: int
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
    refuse_inside("whole cards are seen from outside alone")
    report = describe(_simulated() if simulate else real_machine())
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for card in report.cards:
        for line in _lines(card):
            click.echo(line[:width])


def _simulated() -> Machine:
    from aliquot.cli.runs.simulate import simulated_machine

    return simulated_machine()


def describe(machine: Machine) -> Report:
    """Every card with the slices that live at this moment."""
    registry = Registry(machine.home, Claims(machine.claims))
    with registry.locked():
        found = survey(registry)
        runs = [_look(registry, run) for run in found.runs]
    return Report(tuple(_describe_card(card, found, runs) for card in found.cards))


@dataclass(frozen=True)
class _Seen:
    """A run as it was found."""

    run: Run
    usage: Usage | None
    used_bytes: int | None
    processes: tuple[int, ...]


def _look(registry: Registry, run: Run) -> _Seen:
    usage = registry.usage(run)
    processes = processes_of(run, registry.directory(run.id), usage)
    return _Seen(run, usage, registry.in_use_bytes(run), processes)


def _describe_card(card: Card, found: CardUsage, runs: Sequence[_Seen]) -> CardReport:
    room = room_on(card, found.taken)
    others = [claim.slice for claim in found.claims if claim.slice.card == card.uuid]
    return CardReport(
        index=card.index,
        uuid=card.uuid,
        model=card.model,
        memory_bytes=card.memory_bytes,
        used_bytes=card.used_bytes,
        promised_bytes=sum(share.memory_bytes for share in found.slices if share.card == card.uuid),
        others_bytes=sum(share.memory_bytes for share in others),
        outside_bytes=card.outside_bytes,
        free_bytes=0 if card.mig_enabled else max(0, room.memory_bytes),
        free_core_percent=0 if card.mig_enabled else max(0, room.core_percent),
        mig_enabled=card.mig_enabled,
        slices=tuple(_describe_slice(seen) for seen in runs if seen.run.slice.card == card.uuid),
    )


def _describe_slice(seen: _Seen) -> SliceReport:
    run, usage = seen.run, seen.usage
    told, terms = usage.cards[0] if usage else None, run.slice.core_terms
    return SliceReport(
        run=run.id,
        pid=run.pid if run.supervised() else None,
        processes=seen.processes,
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
    yield f"  {_amounts(card)}"
    if card.slices:
        yield from (f"    {line}" for line in table([HEADINGS, *map(_row, card.slices)]))


def _amounts(card: CardReport) -> str:
    if card.mig_enabled:
        return f"in MIG mode, {size(card.used_bytes)} used"
    words = [
        f"{size(card.promised_bytes)} of {size(card.memory_bytes)} promised",
        f"{size(card.used_bytes)} used",
        f"{size(card.free_bytes)} free for a slice",
    ]
    if card.others_bytes:
        words.append(f"{size(card.others_bytes)} promised to other users")
    if card.outside_bytes >= MIB:
        words.append(f"{size(card.outside_bytes)} used without a slice")
    return ", ".join(words)


def _row(share: SliceReport) -> tuple[str, ...]:
    return (
        share.run,
        pids(share.pid, share.processes),
        size(share.memory_bytes),
        "?" if share.used_bytes is None else size(share.used_bytes),
        _core(share),
        one_line(shlex.join(share.command)),
    )


def _core(share: SliceReport) -> str:
    if not share.core_percent:
        return "uncapped"
    if share.core_mode is CoreMode.BURST:
        return f"{share.core_percent} to {share.core_most_percent} %"
    return f"{share.core_percent} %"
