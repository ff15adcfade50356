"""The driver's files, found below a mounted root and named as the host names them."""

from pathlib import Path

import pytest

from aliquot.plugin.devices.driver_files import (
    CONTAINER_LIB_DIR,
    TRIPLET,
    DriverFile,
    DriverFilesError,
    find_driver_files,
    nvml_files,
)
from aliquot.plugin.devices.driver_root import DriverRoot

HOST = Path("/")


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    """A host's root as a pod has it mounted, with a directory beside it that is the pod's own."""
    root = tmp_path / "host"
    (root / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64").mkdir(parents=True)
    return root


def put(path: Path, target: str | None = None) -> None:
    """A file, or a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if target is None:
        path.touch()
    else:
        path.symlink_to(target)


def cuda(root: Path, host: Path = HOST) -> list[DriverFile]:
    """Where the driver's main library was found."""
    return [
        file for file in find_driver_files(DriverRoot(root, host)) if file.container.name == "libcuda.so.1"
    ]


def test_files_are_named_as_the_host_names_them(seen: Path):
    """By the file behind the link that programs open: a link's target may be another tomorrow."""
    put(seen / "usr/lib64/libcuda.so.580.1")
    put(seen / "usr/lib64/libcuda.so.1", "libcuda.so.580.1")
    found = DriverFile(Path("/usr/lib64/libcuda.so.580.1"), CONTAINER_LIB_DIR / "libcuda.so.1")
    assert cuda(seen) == [found]
    below = Path("/run/nvidia/driver")
    assert cuda(seen, below) == [DriverFile(below / "usr/lib64/libcuda.so.580.1", found.container)]
    assert cuda(seen, seen)[0].host == (seen / "usr/lib64/libcuda.so.1").resolve()


def test_absolute_links_begin_at_the_hosts_root(seen: Path):
    """Debian's packages go by /etc/alternatives; the pod's own file of that name is another driver's."""
    place = f"usr/lib/{TRIPLET}"
    put(seen / place / "nvidia/current/libcuda.so.580.1")
    put(seen / place / "nvidia/current/libcuda.so.1", "libcuda.so.580.1")
    put(seen / "etc/alternatives/libcuda", f"/{place}/nvidia/current/libcuda.so.1")
    put(seen / place / "libcuda.so.1", "/etc/alternatives/libcuda")
    assert [file.host for file in cuda(seen)] == [Path("/", place, "nvidia/current/libcuda.so.580.1")]


def test_no_link_leads_out_of_the_root(seen: Path):
    """Neither upwards, nor by a directory that is a link itself."""
    put(seen.parent / "usr/lib64/libcuda.so.1")
    put(seen / "usr/lib64/libcuda.so.1", "../../../../usr/lib64/libcuda.so.580.1")
    with pytest.raises(DriverFilesError, match=r"no libcuda\.so\.1 below"):
        cuda(seen)
    put(seen / "usr/lib64/libcuda.so.580.1")
    put(seen / "lib64", "/usr/lib64")
    assert [file.host for file in cuda(seen)] == [Path("/usr/lib64/libcuda.so.580.1")]


def test_links_that_lead_nowhere_are_no_files(seen: Path):
    """A circle, and a driver that was taken away halfway."""
    put(seen / "usr/lib64/libcuda.so.1", "libcuda.so.2")
    put(seen / "usr/lib64/libcuda.so.2", "libcuda.so.1")
    put(seen / "usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.580.1")
    with pytest.raises(DriverFilesError):
        cuda(seen)
    assert not list(nvml_files(DriverRoot(seen, HOST)))


def test_nvml_is_told_as_this_process_sees_it(seen: Path):
    """To be loaded here, and not on the host."""
    put(seen / "usr/lib64/libnvidia-ml.so.580.1")
    put(seen / "usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.580.1")
    assert list(nvml_files(DriverRoot(seen, HOST))) == [seen / "usr/lib64/libnvidia-ml.so.580.1"]
