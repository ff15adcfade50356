"""`aliquot cards`: the cards of this machine and who holds slices of them."""

import json
import shlex

import click
from rich import box
from rich.console import Console
from rich.table import Table

from aliquot.cli.fit import room_on
from aliquot.cli.machine import Card, Machine, real_machine
from aliquot.cli.options import simulate_option
from aliquot.cli.runs import Registry, Run
from aliquot.units import format_bytes
from libshim.pages import Usage


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of a table; sizes in bytes."
)
@simulate_option
def cards(as_json: bool, simulate: bool) -> None:
    """List cards and the slices of them that runs hold."""
    machine = _simulated() if simulate else real_machine()
    described = describe(machine)
    if as_json:
        click.echo(json.dumps({"cards": described}, indent=2))
    else:
        Console().print(_table(described))


def _simulated() -> Machine:
    from aliquot.cli.simulate import simulated_machine

    return simulated_machine()


def describe(machine: Machine) -> list[dict[str, object]]:
    """Cards, what is left of them and their slices, ready for JSON; sizes in bytes, times in nanoseconds."""
    registry = Registry(machine.home)
    with registry.locked():
        runs = [(run, registry.usage(run)) for run in registry.runs()]
    return [_describe_card(card, runs) for card in machine.cards]


def _describe_card(card: Card, runs: list[tuple[Run, Usage | None]]) -> dict[str, object]:
    room = room_on(card, [run.slice for run, _ in runs])
    return {
        "index": card.index,
        "uuid": card.uuid,
        "model": card.model,
        "memoryBytes": card.memory_bytes,
        "usedBytes": card.used_bytes,
        "promisedBytes": card.memory_bytes - room.memory_bytes,
        "migEnabled": card.mig_enabled,
        "slices": [_describe_slice(run, usage) for run, usage in runs if run.slice.card == card.uuid],
    }


def _describe_slice(run: Run, usage: Usage | None) -> dict[str, object]:
    used = usage.cards[0] if usage else None
    return {
        "run": run.id,
        "pid": run.pid,
        "command": list(run.command),
        "memoryBytes": run.slice.memory_bytes,
        "corePercent": run.slice.core_percent,
        "usedBytes": used.memory_used_bytes if used else None,
        "deniedAllocations": used.allocations_denied if used else None,
        "busyNs": used.busy_ns if used else None,
    }


def _table(described: list[dict[str, object]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("card", "memory", "used", "core", "run", "command"):
        table.add_column(heading, overflow="fold")
    for card in described:
        _add_card(table, card)
    return table


def _add_card(table: Table, card: dict[str, object]) -> None:
    promised = (
        "MIG mode"
        if card["migEnabled"]
        else f"{_size(card['promisedBytes'])} of {_size(card['memoryBytes'])}"
    )
    table.add_row(
        f"[bold]{card['index']}[/] {card['uuid']}",
        promised,
        _size(card["usedBytes"]),
        "",
        "",
        str(card["model"]),
    )
    slices = card["slices"]
    assert isinstance(slices, list)  # noqa: S101 -- tells mypy what describe() built
    for share in slices:
        core = f"{share['corePercent']} %" if share["corePercent"] else "no cap"
        command = shlex.join(share["command"])
        table.add_row("", _size(share["memoryBytes"]), _size(share["usedBytes"]), core, share["run"], command)


def _size(size_bytes: object) -> str:
    return format_bytes(size_bytes) if isinstance(size_bytes, int) else "?"
