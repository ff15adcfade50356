"""The files that a container gets: the driver's, the interceptor in its flavours, the pages."""

import os
from pathlib import Path

import pytest

from aliquot.libshim.library import forwarder_path, library_path
from aliquot.plugin.container.cdi_spec import CdiSpecs
from aliquot.plugin.container.interceptor import Interceptor, install_interceptor
from aliquot.plugin.container.tenant_pages import TenantPages
from aliquot.plugin.devices.driver_root import DriverRoot

LIB = f"/usr/lib/{os.uname().machine}-linux-gnu"
FORWARDERS = tuple(map(forwarder_path, ("libcuda.so.1", "libnvidia-ml.so.1")))


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A driver as its installer lays it out: files with the version in their names, and links to them."""
    for name in ("libcuda.so", "libnvidia-ml.so", "libnvidia-opencl.so"):
        (tmp_path / f"{name}.615.71.05").write_bytes(name.encode())
        (tmp_path / f"{name}.1").symlink_to(f"{name}.615.71.05")
    return tmp_path


def mounts(driver: Path, interceptor: Interceptor, *, by_file: bool = False) -> dict[str, str]:
    """Container path → host path."""
    specs = CdiSpecs(driver / "cdi", DriverRoot(driver, driver), driver, interceptor)
    spec = specs.spec("nonce", [], TenantPages("uid", "main", driver), by_file=by_file)
    found = spec.devices[0].container_edits.mounts
    assert len({mount.container_path for mount in found}) == len(found)
    assert [mount.container_path for mount in found if "ro" not in mount.options] == ["/run/aliquot/usage"]
    return {mount.container_path: mount.host_path for mount in found}


def test_forwarders_take_every_name_of_the_drivers_libraries(driver: Path, tmp_path: Path):
    """The soname and the file with the version; the driver's own file lies where only the forwarder looks."""
    interceptor = install_interceptor(library_path(), tmp_path / "state", FORWARDERS)
    found = mounts(driver, interceptor)
    for name in ("libcuda", "libnvidia-ml"):
        forwarder = str(interceptor.library.parent / f"{name}.so.1")
        assert found[f"{LIB}/{name}.so.1"] == found[f"{LIB}/{name}.so.615.71.05"] == forwarder
        assert found[f"/usr/local/aliquot/{name}-real.so.1"] == str(driver / f"{name}.so.615.71.05")
        assert Path(forwarder).read_bytes() == forwarder_path(f"{name}.so.1").read_bytes()
    assert found[f"{LIB}/libnvidia-opencl.so.1"] == str(driver / "libnvidia-opencl.so.615.71.05")


def test_without_forwarders_the_driver_keeps_its_names(driver: Path, tmp_path: Path):
    """The soname leads to the driver's own file."""
    found = mounts(driver, install_interceptor(library_path(), tmp_path / "state"))
    assert found[f"{LIB}/libcuda.so.1"] == str(driver / "libcuda.so.615.71.05")
    assert not [path for path in found if "-real" in path]


@pytest.mark.parametrize("by_file", [False, True])
def test_the_loaders_list_is_mounted_where_the_pod_asks_for_it(driver: Path, tmp_path: Path, by_file: bool):
    """It names the interceptor as the container sees it."""
    interceptor = install_interceptor(library_path(), tmp_path / "state", FORWARDERS)
    found = mounts(driver, interceptor, by_file=by_file)
    assert ("/etc/ld.so.preload" in found) == by_file
    assert interceptor.preload_list.read_text() == "/usr/local/aliquot/libaliquot.so\n"
    assert found["/usr/local/aliquot/libaliquot.so"] == str(interceptor.library)


def test_another_forwarder_makes_another_version(tmp_path: Path):
    """A running container keeps the files that it has, whichever of them changes."""
    changed = tmp_path / "libcuda.so.1"
    changed.write_bytes(b"another")
    first = install_interceptor(library_path(), tmp_path / "state", FORWARDERS)
    second = install_interceptor(library_path(), tmp_path / "state", [changed, FORWARDERS[1]])
    again = install_interceptor(library_path(), tmp_path / "state", FORWARDERS)
    assert first.library != second.library
    assert first == again


def test_a_file_that_was_cut_short_is_written_again(tmp_path: Path):
    """A kill may have left it so on a disk that was full."""
    first = install_interceptor(library_path(), tmp_path, FORWARDERS)
    first.forwarders["libcuda.so.1"].write_bytes(b"")
    again = install_interceptor(library_path(), tmp_path, FORWARDERS)
    assert again.forwarders["libcuda.so.1"].read_bytes() == FORWARDERS[0].read_bytes()
