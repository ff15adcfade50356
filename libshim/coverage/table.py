"""The hook table as data. The C preprocessor reads the .def files, so that nothing here has to understand them."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    """One function of the driver's or of NVML's ABI. `duty` of one that is passed on says why it is."""

    hooked: bool
    symbol: str
    name: str
    since: int
    stream: str
    duty: str
    parameters: str


def read_table() -> list[Row]:
    """Returns all rows in the order of the table. Needs a C compiler."""
    with tempfile.TemporaryDirectory(prefix="aliquot-rows-") as directory:
        program = Path(directory) / "rows"
        subprocess.run(["cc", f"-I{HERE.parent / 'src'}", "-o", program, HERE / "rows.c"], check=True)
        lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    return [_row(line) for line in lines]


def _row(line: str) -> Row:
    kind, symbol, name, since, stream, duty, parameters = line.split("\t")
    return Row(kind == "hooked", symbol, name, int(since), stream, duty, parameters)
