"""Compares the hook table with the newest cuda-bindings of the package index, or with the wheel on the command line.

Names every function that the rule below takes for one that takes, maps, frees or reports memory or submits work,
unless it has a row (hooked, or passed on with a reason) or stands among the harmless. The rule errs on the side of
naming. Also named are new ABI versions of hooked functions, and hooks whose parameters are not those of the function.
Exits with 1 when anything was named.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aliquot.libshim.coverage.bindings import Bindings, Function, plain, read_wheel, shapes_of_row
from aliquot.libshim.coverage.harmless import REASONS
from aliquot.libshim.coverage.table import Row, read_table

PACKAGE = "cuda-bindings"

WORDS = re.compile(
    "Alloc|Create|Destroy|Free|Release|Retain|Reset|[Mm]ap|Import|Open|Close|[Ll]oad|Register|[Bb]ind"  # taking, giving
    "|Attach|Detach|Trim|Restore|Instantiate|Upload|Limit|Pool|Managed|Mem|Total"  # holding, reporting
    r"|Launch|Cpy|cpy|[Ff]etch|Discard|Advise|Async|[Cc]apture|Add\w*Node|ExecUpdate|Synchronize|Complete"  # work
    "|Present|Return|Acquire|Switch|Spawn|Enqueue|Submit|Dispatch|Reserve"
)

# Whoever is handed one of these by a function may have been handed memory.
HANDED_OUT = re.compile(
    r"(CUdeviceptr|CUmemGenericAllocationHandle|CUarray|CUmipmappedArray|CUmemoryPool|CUcontext|CUgreenCtx|CUmodule|CUlibrary"
    r"|CUgraphExec|CUlogicalEndpointId) ?\*"
)


def matters(function: Function) -> bool:
    """Whether a function may take, map, free or report memory or submit work, as far as its declaration tells."""
    return bool(WORDS.search(function.name)) or any(map(HANDED_OUT.match, function.parameters))


def without_row(bindings: Bindings, rows: Iterable[Row]) -> Iterator[str]:
    """Functions that need a row and have none, by name; or by symbol where other versions of the name have rows."""
    rows = list(rows)
    names, symbols = {row.name for row in rows}, {row.symbol for row in rows}
    for function in bindings.functions:
        known = plain(function.name) in names
        if known and function.symbol not in symbols:
            yield f"{function.symbol}: other versions of it have rows"
        elif not known and function.name not in REASONS and matters(function):
            yield f"{function.name}({', '.join(function.parameters)})"


def misdeclared(bindings: Bindings, rows: Iterable[Row]) -> Iterator[str]:
    """Hooks whose parameters differ in number or kind from the function's."""
    hooks = {row.symbol: row.parameters for row in rows if row.hooked}
    for function in bindings.functions:
        if function.symbol not in hooks:
            continue
        ours, theirs = shapes_of_row(hooks[function.symbol], bindings), bindings.shapes(function.parameters)
        if ours != theirs:
            yield f"{function.symbol}: the hook takes {ours}, the driver's function {theirs}"


def findings(bindings: Bindings, rows: Sequence[Row]) -> list[str]:
    """Everything to be named."""
    return [*without_row(bindings, rows), *misdeclared(bindings, rows)]


def download(directory: Path) -> Path:
    """Fetches the newest wheel of cuda-bindings without installing it."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--only-binary", ":all:", "--dest", directory, PACKAGE], check=True)
    return next(directory.glob("*.whl"))


def main() -> int:
    """Compares with the wheel that the command line names, or else with the newest one."""
    with tempfile.TemporaryDirectory(prefix="aliquot-cuda-") as directory:
        wheel = Path(sys.argv[1]) if sys.argv[1:] else download(Path(directory))
        rows, bindings = read_table(), read_wheel(wheel)
    found = findings(bindings, rows)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{wheel.name}: {len(bindings.functions)} functions, {len(rows)} rows, {len(found)} to look at")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
