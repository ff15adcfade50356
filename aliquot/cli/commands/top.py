"""`aliquot top`: who has how much of this machine's cards, now."""

import contextlib
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.text import Text

from aliquot.cli.display.screen import Screen, print_cut
from aliquot.cli.display.tenants import CardReport, Look, Report, TenantReport, look, report
from aliquot.cli.display.utilization import time_used
from aliquot.cli.display.wording import one_line, pids, size, table
from aliquot.cli.options import Refusal, simulate_option
from aliquot.cli.runs.machine import runtime_directory, simulated_home, start_nvml

HEADINGS = (
    *("id", "pid", "command", "memory", "mode", "share", "used", "guaranteed", "lent", "waiting"),
    *("prio", "denied", "trusted"),
)
AGENT_DIRECTORY = Path("/run/aliquot/host")
SHORTEST_S = 0.1
LONGEST_COMMAND = 28
PIPE_COLUMNS = 200
UNLEASED = "  nothing leases this card's time now: each keeps to its share by its own clock"


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
@simulate_option
def top(run_dir: Path, interval: float, once: bool, as_json: bool, simulate: bool) -> None:
    """Show who has how much of this machine's cards.

    Of pods where a node agent runs here, and of this user's runs. Times are percentages of the card's. On a terminal
    the table changes in its place until q or Ctrl-C is pressed.
    """
    _prepare_nvml(simulate=simulate)
    reports = partial(_reports, run_dir, interval, simulate=simulate)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(next(reports(time.sleep)))))
    elif once:
        print_cut(_console(), _shown(next(reports(time.sleep)), simulate=simulate))
    else:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            _follow(lambda wait: (_shown(one, simulate=simulate) for one in reports(wait)))


def _prepare_nvml(*, simulate: bool) -> None:
    """Has NVML tell what no page does. Without a driver the pages tell what they can."""
    if simulate:
        from aliquot.cli.runs.simulate import simulated_machine

        simulated_machine()
    else:
        with contextlib.suppress(Refusal):
            start_nvml()


def _console() -> Console:
    """As wide as the terminal; what a program reads is wrapped nowhere."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(width=PIPE_COLUMNS, highlight=False)


Wait = Callable[[float], bool | None]
"""Waits so many seconds; true where no more is to be shown."""


def _follow(tables: Callable[[Wait], Iterator[Text]]) -> None:
    """Tables that follow each other, on a terminal until its user ends it."""
    console = _console()
    if not console.is_terminal:
        for one in tables(time.sleep):
            print_cut(console, one)
        return
    with Screen(console) as screen:
        for one in tables(screen.wait):
            screen.show(one)


def _reports(run_dir: Path, interval: float, wait: Wait, *, simulate: bool) -> Iterator[Report]:
    """What there is, each interval anew."""
    before = _look(run_dir, simulate=simulate)
    while not wait(interval):
        now = _look(run_dir, simulate=simulate)
        yield report(before, now, time_used)
        before = now


def _look(run_dir: Path, *, simulate: bool) -> Look:
    """Reads all pages that this user may read. Raises Refusal where there can be none."""
    if simulate:
        return look(usage.parent for usage in simulated_home().glob("runs/*/usage"))
    try:
        pods = [usage.parent for usage in run_dir.glob("tenants/*/*/usage")]
    except OSError as error:
        raise Refusal(f"cannot read {run_dir}: {error.strerror}") from error
    runs = [usage.parent for usage in runtime_directory().glob("machine/runs/*/usage")]
    return look((*pods, *runs))


def _shown(told: Report, *, simulate: bool) -> Text:
    lines = [line for card in told.cards for line in _lines(card)]
    if not lines:
        lines = ["no run of yours and no pod has a slice of this machine's cards"]
        if not simulate and any(simulated_home().glob("runs/*/usage")):
            lines.append("there are runs on the simulated machine: aliquot top --simulate")
    return Text("\n".join(lines), no_wrap=True, overflow="crop")


def _lines(card: CardReport) -> Iterator[str]:
    yield f"card {card.uuid}" if card.index is None else f"card {card.index}  {card.model}  {card.uuid}"
    yield from (f"  {line}" for line in table([HEADINGS, *map(_row, card.tenants)]))
    if not card.leased:
        yield UNLEASED


def _row(one: TenantReport) -> tuple[str, ...]:
    share = f"{_percent(one.share)}" + (f" to {_percent(one.most)}" if one.most > one.share else "")
    return (
        one.id or one.tenant,
        pids(one.pid, one.processes) if one.id else "-",
        _command(one),
        f"{size(one.used_bytes)} of {size(one.memory_bytes)}",
        one.mode,
        share,
        *map(_percent, (one.used, one.guaranteed, one.lent, one.waiting)),
        str(one.priority),
        str(one.denied_allocations),
        "yes" if one.trusted else "no",
    )


def _command(one: TenantReport) -> str:
    """As much as there is room for, without the directory of the program."""
    if not one.command:
        return "-"
    return one_line(shlex.join([Path(one.command[0]).name, *one.command[1:]]), LONGEST_COMMAND)


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"
