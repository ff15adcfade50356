"""A relative path in LD_PRELOAD, which the loader finds in one directory alone: the limits hold in all of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.tenants import interceptor

TOTAL_MIB = """
from cuda.bindings import driver as cuda
cuda.cuInit(0)
cuda.cuCtxSetCurrent(cuda.cuDevicePrimaryCtxRetain(0)[1])
print(cuda.cuMemGetInfo()[2] >> 20)
"""
LIMITED = "2048\n"
ELSEWHERE = ["sh", "-c", 'cd / && "$@"', "sh", sys.executable, "-c", TOTAL_MIB]


def start(
    machine: SimMachine, directory: Path, preload: str, command: list[str], **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a directory with this LD_PRELOAD and a limit of 2 GiB."""
    environment = {
        **os.environ,
        **machine.env(),
        "CUDA_DEVICE_MEMORY_LIMIT": "2g",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(machine.root / "usage"),
        "LD_PRELOAD": preload,
        **variables,
    }
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory in which the library lies."""
    shutil.copyfile(interceptor(), tmp_path / "libaliquot.so")
    return tmp_path


RELATIVE = ["./libaliquot.so", "{name}/../{name}/libaliquot.so", "./libaliquot.so libm.so.6"]


@pytest.mark.parametrize("path", RELATIVE)
def test_a_child_in_another_directory_has_the_limit(machine: SimMachine, here: Path, path: str):
    """Started by a shell that has changed its directory, a program sees 2 GiB, and the loader has no complaint."""
    (here / here.name).mkdir()
    (here / here.name / "libaliquot.so").symlink_to(here / "libaliquot.so")
    done = start(machine, here, path.format(name=here.name), ELSEWHERE)
    assert (done.stdout, done.stderr) == (LIMITED, "")


def test_a_name_that_the_loader_searched_for_is_found_again(machine: SimMachine, here: Path):
    """With the search path of one directory, which is relative, too."""
    search = f".:{machine.env().get('LD_LIBRARY_PATH', '')}"
    done = start(machine, here, "libaliquot.so", ELSEWHERE, LD_LIBRARY_PATH=search)
    assert (done.stdout, done.stderr) == (LIMITED, "")


def test_the_callers_other_libraries_stay(machine: SimMachine, here: Path):
    """Only our entry changes, in its place."""
    done = start(machine, here, "libc.so.6:./libaliquot.so libm.so.6", ["sh", "-c", "echo $LD_PRELOAD"])
    assert done.stdout == f"libc.so.6:{here}/libaliquot.so libm.so.6\n"


def test_an_absolute_path_stays_as_it_is(machine: SimMachine, here: Path):
    """Also where it is a link."""
    link = here / "link.so"
    link.symlink_to(here / "libaliquot.so")
    done = start(machine, here, str(link), ["sh", "-c", "echo $LD_PRELOAD"])
    assert done.stdout == f"{link}\n"


def test_a_directory_that_cannot_be_preloaded_from_is_named(machine: SimMachine, here: Path):
    """A blank in its name separates entries of LD_PRELOAD."""
    blank = here / "my project"
    blank.mkdir()
    shutil.copyfile(interceptor(), blank / "libaliquot.so")
    done = start(machine, blank, "./libaliquot.so", ["true"])
    assert f"LD_PRELOAD cannot hold {blank}/libaliquot.so" in done.stderr
    assert "make a link to it" in done.stderr
