"""The demo's story: bring everything up, apply the examples, and put each pod's claim beside what is true."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.cli.demo import checks
from aliquot.cli.demo.checks import MIB, Seen
from aliquot.cli.demo.stack import Stack
from aliquot.request.placement import CardShare, Placement, decode_placement
from aliquot.sandbox.cluster.processes import wait_for

PATIENCE_S = 60.0
TRUE, WRONG = ("✓", "ok"), ("✗", "WRONG")
WINDOW_S = 3.0
"""Over how long compute time is measured."""
CORE_TOLERANCE = 3.0
"""Points of compute time above its share that a pod may have got in one window."""
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
TOO_LARGE = "giant"
"""The example that no card can hold: it must wait, and all others run."""


class ScenarioError(Exception):
    """The story cannot go on; the message says what was waited for."""


@dataclass
class Row:
    """A pod's line in the table; `problems` is empty when all of it is true."""

    pod: str
    asks: str
    card: str = "-"
    saw: str = ""
    holds: str = ""
    time: str = ""
    note: str = ""
    problems: list[str] = field(default_factory=list)

    def check(self, holds: bool, problem: str) -> None:
        """Note a problem unless something holds."""
        if not holds:
            self.problems.append(problem)


class Scenario:
    """Tells it on a console; `tell` returns whether everything shown is true."""

    def __init__(self, stack: Stack, console: Console, examples: Path) -> None:
        self._stack, self._console = stack, console
        (self._node,) = stack.nodes.values()
        self._manifests = _in_order(examples)
        self._pods = [m for m in self._manifests if m["kind"] == "Pod"]
        self._begin = time.monotonic()

    def tell(self) -> bool:
        """Run the demo."""
        cards = self._node.machine.cards
        self._say(
            f"A node with {len(cards)} simulated cards of {cards[0].memory_mib // 1024} GiB, "
            "a pocket cluster, and the real webhook, extender and node agent:"
        )
        self._stack.start()
        self._step("everything runs; each part is a process of its own")
        self._stack.kubectl.apply(*self._manifests)
        self._step(f"applied examples/inference: {len(self._pods)} pods")
        self._wait_for_pods()
        rows = self._rows()
        waiting = sum(row.card == "-" for row in rows)
        self._step(f"{len(rows) - waiting} run their CUDA program and were measured, {waiting} waits")
        self._show(rows)
        problems = [f"{row.pod}: {problem}" for row in rows for problem in row.problems]
        problems += self._check_metrics(bound=len(rows) - waiting)
        for problem in problems:
            self._console.print(f"[red]{self._mark(WRONG)} {problem}[/red]")
        self._step("all of it checked" if not problems else "NOT all of it is true")
        return not problems

    def _mark(self, mark: tuple[str, str]) -> str:
        """The sign, or the word where the terminal has no such character."""
        sign, word = mark
        try:
            sign.encode(self._console.encoding)
        except UnicodeEncodeError:
            return word
        return sign

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def _step(self, text: str) -> None:
        self._say(f"  {time.monotonic() - self._begin:5.1f} s  {text}")

    def _wait_for_pods(self) -> None:
        for pod in self._pods:
            self._wait(f"pod {_name(pod)} to run or to be told why it waits", partial(self._settled, pod))
        # Everybody's next signs of life come after all have started, and after the greedy pod's attempt.
        wanted = {name: self._beats(name) + 2 for name in self._running()}
        for name, beats in wanted.items():
            self._wait(f"pod {name} to compute", partial(self._has_beaten, name, beats))
        self._wait("a window of compute time", _after(WINDOW_S))

    def _wait(self, what: str, predicate: Callable[[], Any]) -> None:
        try:
            wait_for(what, predicate, PATIENCE_S)
        except TimeoutError as error:
            raise ScenarioError(str(error)) from error

    def _settled(self, pod: dict[str, Any]) -> bool:
        stored = self._stack.kubectl.get("pods", _name(pod))
        if stored["status"].get("phase") == "Running":
            return checks.listen(self._stack, _name(pod)) is not None
        return bool(checks.pending_reason(stored))

    def _running(self) -> list[str]:
        names = [_name(pod) for pod in self._pods]
        return [n for n in names if self._stack.kubectl.get("pods", n)["status"]["phase"] == "Running"]

    def _has_beaten(self, name: str, beats: int) -> bool:
        return self._beats(name) >= beats

    def _beats(self, name: str) -> int:
        seen = checks.listen(self._stack, name)
        return seen.beats if seen else 0

    def _rows(self) -> list[Row]:
        return [self._row(pod) for pod in self._pods]

    def _row(self, manifest: dict[str, Any]) -> Row:
        name = _name(manifest)
        stored = self._stack.kubectl.get("pods", name)
        row = Row(name, _asks(manifest))
        text = stored["metadata"].get("annotations", {}).get(PLACEMENT_ANNOTATION)
        if text is None:
            self._fill_waiting(row, stored)
        else:
            self._fill_running(row, manifest, decode_placement(text))
        return row

    def _fill_waiting(self, row: Row, stored: dict[str, Any]) -> None:
        reason = checks.pending_reason(stored)
        row.saw = "Pending"
        row.note = f"waits: {reason.split(' no new claims')[0]}"
        row.check(bool(re.match(r"0/1 nodes are available: 1 \w", reason)), f"no counted reason: {reason!r}")
        row.check(row.pod == TOO_LARGE, "should run")

    def _fill_running(self, row: Row, manifest: dict[str, Any], placement: Placement) -> None:
        seen = checks.listen(self._stack, row.pod)
        if seen is None:
            raise ScenarioError(f"pod {row.pod} has stopped talking")
        shares = placement.containers[0].cards
        row.card = ", ".join(str(self._index(share.uuid)) for share in shares)
        row.saw = ", ".join(f"{mib} MiB" for mib in sorted(set(seen.total_mib)))
        wants = _environment(manifest)
        row.check(row.pod != TOO_LARGE, "should wait")
        row.check(seen.cards == tuple(sorted((s.uuid for s in shares), key=self._index)), "saw other cards")
        row.check(
            all(mib == share.memory_mib for mib, share in zip(seen.total_mib, shares, strict=False)),
            "saw another size",
        )
        row.check(seen.loaded_mib == int(wants["WEIGHTS_MIB"]), f"loaded {seen.loaded_mib} MiB")
        row.check(seen.intact, "its data was damaged")
        row.holds = f"{seen.loaded_mib} MiB"
        row.time = ", ".join(self._measure(row, share, placement.pod_uid) for share in shares)
        self._check_greed(row, seen, int(wants.get("GREED_MIB", "0")))

    def _measure(self, row: Row, share: CardShare, pod_uid: str) -> str:
        """Hold a slice against the simulated GPU's own counts; returns its part of the card's time."""
        held = checks.memory_held(self._node, share.uuid, pod_uid)
        row.check(0 < held <= share.memory_mib * MIB, f"holds {held} bytes on {share.uuid}")
        percent = checks.time_share(self._node, share.uuid, pod_uid, WINDOW_S)
        row.check(percent <= share.cores + CORE_TOLERANCE, f"got {percent:.1f} %, not {share.cores} %")
        row.check(percent > 0, "did not compute")
        return f"{percent:.0f} %"

    def _check_greed(self, row: Row, seen: Seen, greed_mib: int) -> None:
        if not greed_mib:
            row.check(seen.denied is None, f"was denied {seen.denied}")
            return
        row.check(seen.denied == (greed_mib, OUT_OF_MEMORY), f"was not denied {greed_mib} MiB: {seen.denied}")
        row.note = (
            f"tried to take {greed_mib} MiB: {OUT_OF_MEMORY}; its neighbours compute on, their data intact"
        )

    def _index(self, uuid: str) -> int:
        return [card.uuid for card in self._node.machine.cards].index(uuid)

    def _check_metrics(self, bound: int) -> list[str]:
        """Compare what the services tell Prometheus with what the demo did."""
        wanted = {
            "webhook": r"^aliquot_webhook_requests_total\{.*\} [1-9]",
            "extender": rf'^aliquot_bind_seconds_count\{{outcome="ok"\}} {bound}\.0$',
            self._node.name: r'^aliquot_slice_allocations_denied_total\{.*pod="greedy".*\} [1-9]',
        }
        found = {service: self._stack.metrics(service) for service in wanted}
        self._step("scraped the metrics of webhook, extender and node agent")
        return [
            f"metrics of {service} have no {pattern}"
            for service, pattern in wanted.items()
            if not re.search(pattern, found[service], re.MULTILINE)
        ]

    def _show(self, rows: list[Row]) -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("pod", "asks for", "card", "saw", "holds", "GPU time", ""):
            table.add_column(heading, no_wrap=True)
        for row in rows:
            mark = f"[red]{self._mark(WRONG)}[/red]" if row.problems else f"[green]{self._mark(TRUE)}[/green]"
            table.add_row(row.pod, row.asks, row.card, row.saw, row.holds, row.time, mark)
        self._console.print()
        self._console.print(table)
        for row in rows:
            if row.note:
                self._say(f"{row.pod} {row.note}")
        self._console.print()


def _in_order(examples: Path) -> list[dict[str, Any]]:
    """Read all manifests, configuration before pods and small asks after large ones as the files are named."""
    documents = [
        d for path in sorted(examples.glob("*.yaml")) for d in yaml.safe_load_all(path.read_text()) if d
    ]
    return sorted(documents, key=lambda document: document["kind"] == "Pod")


def _name(manifest: dict[str, Any]) -> str:
    return str(manifest["metadata"]["name"])


def _asks(manifest: dict[str, Any]) -> str:
    limits = manifest["spec"]["containers"][0]["resources"]["limits"]
    return ", ".join(
        f"{name.partition('/')[2].removeprefix('gpu-')} {value}" for name, value in limits.items()
    )


def _environment(manifest: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in manifest["spec"]["containers"][0]["env"]}


def _after(seconds: float) -> Callable[[], bool]:
    """Build a predicate that holds once some time has passed."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
