"""Prints the hook table: `entry | versions | duty | tests`.

Which tests enter which hook is no list kept by hand: the native tests run on the tracing flavour of the interceptor
(`make -C tests coverage-report`), which leaves a JSON object of test id: symbols entered. Exits with 1 when a hook was
entered by no test.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aliquot.libshim.coverage.table import Row, read_table

SHOWN = 3
FLAVOURS = {"LEGACY": "", "PER_THREAD": ", per-thread stream", "ANY": ""}


@dataclass(frozen=True)
class Entry:
    """The rows of one name that have the same duty."""

    name: str
    duty: str
    rows: Sequence[Row]


def entries(rows: Iterable[Row]) -> list[Entry]:
    """Gathers rows by name and duty, in the table's order."""
    gathered: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        gathered.setdefault((row.name, row.duty), []).append(row)
    return [Entry(name, duty, found) for (name, duty), found in gathered.items()]


def tests_by_symbol(traces: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Tests that entered each symbol, those first that entered little else: they are about it."""
    found: dict[str, list[str]] = {}
    for test in sorted(traces, key=lambda test: (len(traces[test]), test)):
        for symbol in traces[test]:
            found.setdefault(symbol, []).append(test.rpartition("/")[2])
    return found


def untested(rows: Iterable[Row], traces: Mapping[str, Sequence[str]]) -> list[str]:
    """Hooks that no test entered."""
    entered = {symbol for symbols in traces.values() for symbol in symbols}
    return [row.symbol for row in rows if row.hooked and row.symbol not in entered]


def _versions(entry: Entry) -> str:
    since = {row.symbol: f" ({row.since}{FLAVOURS[row.stream]})" if row.since else "" for row in entry.rows}
    return ", ".join(symbol + text for symbol, text in since.items())


def _tests(entry: Entry, by_symbol: Mapping[str, Sequence[str]]) -> str:
    if not entry.rows[0].hooked:
        return "left to the driver"
    tests = list(dict.fromkeys(test for row in entry.rows for test in by_symbol.get(row.symbol, [])[:SHOWN]))
    total = len({test for row in entry.rows for test in by_symbol.get(row.symbol, [])})
    more = [f"and {total - SHOWN} more"] if total > SHOWN else []
    missing = [f"NONE for {row.symbol}" for row in entry.rows if row.symbol not in by_symbol]
    return ", ".join([*missing, *tests[:SHOWN], *more])


def main() -> int:
    """Prints the report on the traces whose file the command line names."""
    traces: dict[str, list[str]] = json.loads(Path(sys.argv[1]).read_text())
    rows, by_symbol = read_table(), tests_by_symbol(traces)
    print("entry | versions | duty | tests\n--- | --- | --- | ---")
    for entry in entries(rows):
        print(entry.name, _versions(entry), entry.duty, _tests(entry, by_symbol), sep=" | ")
    missing = untested(rows, traces)
    hooked = sum(row.hooked for row in rows)
    print(
        f"\n{hooked} hooked, {len(rows) - hooked} left to the driver; {len(missing)} hooks entered by no test"
    )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
