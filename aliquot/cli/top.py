"""`aliquot top`: who has how much of this machine's cards, now."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from aliquot.cli.machine import runtime_directory
from aliquot.cli.options import Refusal
from aliquot.cli.tenants import CardReport, Look, Report, TenantReport, look, report
from aliquot.units import MIB, format_bytes

HEADINGS = (
    *("tenant", "mode", "prio", "share", "guaranteed", "used", "lent", "waiting"),
    *("memory", "denied", "trusted"),
)
AGENT_DIRECTORY = Path("/run/aliquot/host")
SHORTEST_S = 0.1
PIPE_COLUMNS = 200


@click.command()
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    default=AGENT_DIRECTORY,
    help="The node agent's --run-dir.",
    show_default=True,
)
@click.option(
    "--interval",
    type=click.FloatRange(min=SHORTEST_S),
    default=1.0,
    help="Seconds that ratios are taken over.",
)
@click.option("--once", is_flag=True, help="Print one table, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, and end.")
def top(run_dir: Path, interval: float, once: bool, as_json: bool) -> None:
    """Show who has how much of this machine's cards.

    Of pods where a node agent runs here, and of this user's runs. Times are percentages of the card's.
    """
    reports = _reports(run_dir, interval)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(next(reports))))
    elif once:
        _console().print(_shown(next(reports)))
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _follow(reports)


def _console() -> Console:
    """As wide as the terminal; what a program reads is wrapped nowhere."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=PIPE_COLUMNS)


def _follow(reports: Iterator[Report]) -> None:
    """A table that changes in its place, or, where there is no terminal, one after the other."""
    console = _console()
    if not console.is_terminal:
        for one in reports:
            console.print(_shown(one))
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for one in reports:
            live.update(_shown(one), refresh=True)


def _reports(run_dir: Path, interval: float) -> Iterator[Report]:
    """What there is, each interval anew."""
    before = _look(run_dir)
    while True:
        time.sleep(interval)
        now = _look(run_dir)
        yield report(before, now)
        before = now


def _look(run_dir: Path) -> Look:
    """Reads all pages that this user may read. Raises Refusal where there can be none."""
    try:
        pods = [usage.parent for usage in run_dir.glob("tenants/*/*/usage")]
    except OSError as error:
        raise Refusal(f"cannot read {run_dir}: {error.strerror}") from error
    runs = [usage.parent for usage in runtime_directory().glob("*/runs/*/usage")]
    return look((*pods, *runs))


def _shown(told: Report) -> RenderableType:
    if not told.cards:
        return "nobody has a slice of this machine's cards"
    return Group(*map(_table, told.cards))


def _table(card: CardReport) -> Table:
    table = Table(*HEADINGS, title=f"card {card.uuid}", title_justify="left", box=None, pad_edge=False)
    for tenant in card.tenants:
        table.add_row(*_row(tenant))
    return table


def _row(one: TenantReport) -> tuple[str, ...]:
    share = f"{_percent(one.share)}" + (f" to {_percent(one.most)}" if one.most > one.share else "")
    return (
        one.tenant,
        one.mode,
        str(one.priority),
        share,
        *map(_percent, (one.guaranteed, one.used, one.lent, one.waiting)),
        f"{format_bytes(one.used_bytes // MIB * MIB)} of {format_bytes(one.memory_bytes)}",
        str(one.denied_allocations),
        "yes" if one.trusted else "no",
    )


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"
