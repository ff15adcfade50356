"""The release build for aarch64 at work, on an emulated processor, with a driver built for it too."""

import subprocess
import sys
from pathlib import Path

import pytest

from aliquot.libshim.control_page import CardLimit, Control, create_control
from aliquot.libshim.usage_page import create_usage, read_usage
from aliquot.sandbox.gpus import SOURCES, SimCard, SimMachine
from tests.native.forwarded import SONAMES, behind
from tests.native.shells import CLIENTS, LIBSHIM
from tests.tools.debian import unpack_or_skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the set-up builds for the other processor

ZIG = f"{sys.executable} -m ziglang cc"
TARGET = f"{ZIG} -target aarch64-linux-gnu.2.36"
RELEASE = LIBSHIM / "build" / "release" / "aarch64"
MIB = 1 << 20


@pytest.fixture(scope="module")
def emulator() -> list[str]:
    """The command that runs a program for aarch64 here."""
    root = unpack_or_skip("qemu-user-static", "libc6-arm64-cross")
    return [str(root / "usr/bin/qemu-aarch64-static"), "-L", str(root / "usr/aarch64-linux-gnu")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client and, below it, `driver` and `forwarded`: what a program finds without and with forwarders."""
    root = tmp_path_factory.mktemp("aarch64")
    release = ["make", "-s", "-C", LIBSHIM, "release", "ARCHS=aarch64", f"ZIG={ZIG}"]
    subprocess.run(release, check=True, capture_output=True)
    subprocess.run(["make", "-s", "-C", SOURCES, f"BUILD={root / 'driver'}", f"CC={TARGET}"], check=True)
    client = [*TARGET.split(), "-O1", "-D_GNU_SOURCE", "-o", root / "client", CLIENTS / "isolation.c"]
    subprocess.run(client, check=True)
    (root / "forwarded").mkdir()
    (root / "forwarded" / "libaliquot.so").symlink_to(RELEASE / "libaliquot.so")
    for soname in SONAMES:
        (root / "forwarded" / soname).symlink_to(RELEASE / "forwarder" / soname)
        (root / "forwarded" / behind(soname)).symlink_to(root / "driver" / soname)
    return root


@pytest.mark.parametrize("way", ["name", "address", "namespace"])
@pytest.mark.parametrize(
    "case",
    [
        ("driver", "", "bypass"),
        ("driver", str(RELEASE / "libaliquot.so"), "held"),
        ("forwarded", "", "held"),
        ("forwarded", str(RELEASE / "libaliquot.so"), "held"),
    ],
)
def test_the_slice_holds(
    emulator: list[str], built: Path, tmp_path: Path, way: str, case: tuple[str, str, str]
):
    """Either flavour alone and both together; without either the program gets what it wants."""
    libraries, preload, outcome = case
    machine = SimMachine(tmp_path / "machine", [SimCard()])
    machine.create()
    create_control(
        tmp_path / "control", Control("test/aarch64", (CardLimit(machine.cards[0].uuid, 64 * MIB),))
    )
    create_usage(tmp_path / "usage")
    env = {
        "SIMGPU_DIR": str(machine.root),
        "ALIQUOT_CONTROL_PAGE": str(tmp_path / "control"),
        "ALIQUOT_USAGE_PAGE": str(tmp_path / "usage"),
    }
    loader = ["-E", f"LD_LIBRARY_PATH={built / libraries}", "-E", f"LD_PRELOAD={preload}"]
    command = [*emulator, *loader, built / "client", way]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == (outcome, 0), done.stderr
    assert read_usage(tmp_path / "usage").cards[0].memory_peak_bytes == (MIB if outcome == "held" else 0)
