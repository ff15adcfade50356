"""What each flavour of the interceptor stops: docs/isolation.md, cell by cell, in real containers."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from aliquot.api.names import LIBRARY_PATH
from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.library import forwarder_path, library_path
from aliquot.libshim.usage_page import create_usage, read_usage
from aliquot.plugin.container.cdi_spec import CdiSpecs
from aliquot.plugin.container.interceptor import install_interceptor
from aliquot.plugin.container.tenant_pages import TenantPages
from aliquot.plugin.devices.driver_root import DriverRoot
from aliquot.sandbox.gpus import SimMachine
from tests.native.box import OTHER_USER, Box, make_box, unshare
from tests.native.forwarded import SONAMES
from tests.native.shells import CLIENTS, two_cards
from tests.tools.debian import unpack_or_skip

ROOT = Path(__file__).resolve().parents[2]
TABLE = json.loads((ROOT / "tests" / "data" / "isolation.json").read_text())
WAYS = [row["way"] for row in TABLE["rows"]]
DRIVER, COMPAT = "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/opt/compat"
MUSL = "/lib/ld-musl-x86_64.so.1"
MIB = 1 << 20


@dataclass(frozen=True)
class Try:
    """How a program is started to try one of the ways."""

    command: tuple[str, ...]
    user: int = 0
    env: Mapping[str, str] | None = None


TRIES = dict(
    zip(
        WAYS,
        [
            Try(("/linked",)),
            Try(("/program", "name")),
            Try(("/program", "address")),
            Try(("/program", "path", DRIVER)),
            Try(("/program", "path", "/usr/local/aliquot/libcuda-real.so.1")),
            Try(("/program", "plugin", "/plugin.so")),
            Try(("/program", "namespace")),
            Try(("/program", "empty")),
            Try(("/program", "own", "/own.so")),
            Try(("/setuid",), user=OTHER_USER),
            Try(("/static", "child")),
            Try(("/program", "name"), env={"LD_LIBRARY_PATH": COMPAT}),
            Try(("/program", "empty", f"{COMPAT}/libcuda.so.1")),
            Try(("/musl", "name")),
            Try(("/static", "node", "/dev/nvidia0")),
        ],
        strict=True,
    )
)
NEEDS_ROOT = {"set-user-id program"}
SLOW = {"program with musl's loader"}


@dataclass(frozen=True)
class Cell:
    """One cell of the table, and what its column means."""

    way: str
    column: str
    outcome: str

    @property
    def forwarded(self) -> bool:
        """Whether the forwarder stands in the driver's place."""
        return self.column.startswith("forwarder")

    @property
    def by_file(self) -> bool:
        """Whether the loader has a list of its own."""
        return self.column.endswith("/etc/ld.so.preload")

    @property
    def by_environment(self) -> bool:
        """Whether the environment names the interceptor."""
        return self.column.endswith("LD_PRELOAD")


CELLS = [
    pytest.param(
        Cell(row["way"], column, outcome),
        id=f"{row['way']}-{column}",
        marks=[pytest.mark.slow] * (row["way"] in SLOW),
    )
    for row in TABLE["rows"]
    for column, outcome in zip(TABLE["columns"], row["cells"], strict=True)
]


def compile_client(directory: Path, machine: SimMachine) -> dict[str, Path]:
    """The client's builds, by their path in the container."""
    source, driver = CLIENTS / "isolation.c", machine.lib_dir / "libcuda.so.1"
    builds = {
        "program": [],
        "linked": ["-DLINKED", driver],
        "plugin.so": ["-DLINKED", "-DPLUGIN", "-shared", "-fPIC", driver],
        "own.so": ["-DPLUGIN", "-shared", "-fPIC"],
        "static": ["-static", "-w", "-Wl,--no-warnings"],
    }
    for name, flags in builds.items():
        command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-o", directory / name, source, *flags, "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
    shutil.copy(directory / "program", directory / "setuid")
    made = {f"/{name}": directory / name for name in (*builds, "setuid")}
    return made | {f"{COMPAT}/libcuda.so.1": driver}


def fetch_musl(directory: Path) -> dict[str, Path]:
    """The client for musl, and Debian's musl to run it."""
    target = directory / "musl"
    compiler = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "x86_64-linux-musl",
        "-dynamic",
        "-O1",
        "-D_GNU_SOURCE",
    ]
    subprocess.run([*compiler, "-o", target, CLIENTS / "isolation.c"], check=True)
    return {"/musl": target, MUSL: (unpack_or_skip("musl") / MUSL.lstrip("/")).resolve()}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all cells."""
    if not unshare():
        pytest.skip("NOT RUN: no mount namespaces here; they take root or user namespaces")
    return two_cards(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def clients(machine: SimMachine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The programs of the containers, by their path in them."""
    return compile_client(tmp_path_factory.mktemp("clients"), machine)


@pytest.fixture
def pages(machine: SimMachine, tmp_path: Path) -> TenantPages:
    """A tenant's pages: 64 MiB of the first card."""
    tenant = TenantPages("uid", "main", tmp_path)
    create_control(tenant.control, Control("test/main", (CardLimit(machine.cards[0].uuid, 64 * MIB),)))
    create_usage(tenant.usage)
    tenant.usage.path.chmod(0o666)
    return tenant


@pytest.fixture
def box(
    machine: SimMachine, clients: dict[str, Path], pages: TenantPages, tmp_path: Path
) -> Callable[..., Box]:
    """Makes a container of a flavour by the spec that the node agent writes, with more files if need be."""

    def make(cell: Cell, files: Mapping[str, Path]) -> Box:
        forwarders = tuple(map(forwarder_path, SONAMES)) if cell.forwarded else ()
        interceptor = install_interceptor(library_path(), tmp_path / "state", forwarders)
        specs = CdiSpecs(
            tmp_path / "cdi", DriverRoot(machine.lib_dir, machine.lib_dir), machine.dev_dir, interceptor
        )
        spec = specs.spec("nonce", ["nvidia0"], pages, by_file=cell.by_file)
        edits = spec.devices[0].container_edits
        made = make_box(tmp_path / "root", {**clients, **files}, edits, {"/machine": str(machine.root)})
        (made.root / "setuid").chmod(0o4755)
        return made

    return make


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_of_the_table(box: Callable[..., Box], pages: TenantPages, tmp_path: Path, cell: Cell):
    """What the page promises happens, and where the limit holds the account is right to the byte."""
    if cell.way in NEEDS_ROOT and len(unshare()) > 2:
        pytest.skip("NOT RUN: set-user-id programs take root to set up")
    tried = TRIES[cell.way]
    made = box(cell, fetch_musl(tmp_path) if cell.way in SLOW else {})
    env = {"SIMGPU_DIR": "/machine", **(tried.env or {})}
    if cell.by_environment:
        env["LD_PRELOAD"] = LIBRARY_PATH
    assert made.run(tried.command, user=tried.user, **env) == cell.outcome
    assert read_usage(pages.usage).cards[0].memory_peak_bytes == (MIB if cell.outcome == "held" else 0)


def test_the_page_shows_this_table():
    """The rows, columns and outcomes of docs/isolation.md are those of the table that is tested."""
    lines = [
        [cell.strip().replace("*", "").replace("`", "") for cell in line.split("|")[1:-1]]
        for line in (ROOT / "docs" / "isolation.md").read_text().splitlines()
        if line.startswith("|")
    ]
    assert lines[0][1:] == TABLE["columns"]
    assert lines[2:] == [[row["way"], *row["cells"]] for row in TABLE["rows"]]
