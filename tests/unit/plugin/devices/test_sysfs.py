"""Where devices hang, as Linux tells, and what becomes of it when it tells nonsense."""

from pathlib import Path

import pytest

from aliquot.crds.gpu_node import Nic
from aliquot.plugin.devices.sysfs import MOST_NICS, pcie_root, rdma_nics
from aliquot.sandbox.sysfs import PciPlace, SimNic, write_sysfs

CARD = PciPlace("00000000:18:00.0", "pci0000:15/0000:16:00.0", 0)


def nic(name: str, bus_id: str, physical: str = "") -> SimNic:
    """A NIC below a switch of the second NUMA node."""
    return SimNic(name, PciPlace(bus_id, "pci0000:97/0000:98:01.0", 1), physical)


def test_devices_are_found_below_their_root_complex(tmp_path: Path):
    """NVML writes bus ids with eight digits and capitals, sysfs with four and without; a domain may need more."""
    far = PciPlace("00010000:AB:00.0", "pci10000:aa", 1)
    write_sysfs(tmp_path, [CARD, far], [nic("mlx5_1", "00000000:9A:00.0"), nic("mlx5_0", "00000000:99:00.0")])
    assert pcie_root(tmp_path, "00000000:18:00.0") == "pci0000:15"
    assert pcie_root(tmp_path, "00010000:AB:00.0") == "pci10000:aa"
    assert rdma_nics(tmp_path) == tuple(
        Nic(name=name, numa_node=1, pcie_root="pci0000:97") for name in ("mlx5_0", "mlx5_1")
    )


def test_virtual_functions_are_not_listed(tmp_path: Path):
    """They hang where their NIC does, and would count as many."""
    nics = [nic("mlx5_0", "00000000:99:00.0"), nic("mlx5_1", "00000000:99:00.1", physical="mlx5_0")]
    write_sysfs(tmp_path, [], nics)
    assert [one.name for one in rdma_nics(tmp_path)] == ["mlx5_0"]


def test_no_more_are_listed_than_may_be_published(tmp_path: Path):
    """The first by name."""
    write_sysfs(tmp_path, [], [nic(f"mlx5_{n:03}", f"00000000:{n:02X}:00.0") for n in range(MOST_NICS + 9)])
    assert [one.name for one in rdma_nics(tmp_path)] == [f"mlx5_{n:03}" for n in range(MOST_NICS)]


@pytest.mark.parametrize("bus_id", ["", "18:00.0", "../../etc:18:00.0", "00000000:18:00.9", "x" * 99])
def test_a_bus_id_that_is_none_has_no_root(tmp_path: Path, bus_id: str):
    """Nothing is looked up by it."""
    write_sysfs(tmp_path, [CARD], [])
    assert pcie_root(tmp_path, bus_id) == ""


def test_what_linux_does_not_tell_is_unknown(tmp_path: Path):
    """No tree, no device, no NUMA node, a number that is none, a device that is a ring of links: nothing raises."""
    assert (pcie_root(tmp_path / "none", CARD.bus_id), rdma_nics(tmp_path / "none")) == ("", ())
    write_sysfs(tmp_path, [CARD], [nic(f"n{n}", f"00000000:9{n}:00.0") for n in range(4)])
    nics = tmp_path / "class" / "infiniband"
    (nics / "soft").mkdir()
    for name, text in (("n0", "-1\n"), ("n1", "-7\n"), ("n2", "one\n"), ("n3", "")):
        (nics / name / "device" / "numa_node").write_text(text)
    (nics / "n3" / "device" / "numa_node").unlink()
    ring = nics / "ring" / "device"
    ring.parent.mkdir()
    ring.symlink_to(ring)
    assert rdma_nics(tmp_path) == tuple(Nic(name=f"n{n}", pcie_root="pci0000:97") for n in range(4))
    outside = tmp_path / "outside"
    outside.mkdir()
    place = tmp_path / "bus" / "pci" / "devices" / "0000:18:00.0"
    place.unlink()
    place.symlink_to(outside)
    assert pcie_root(tmp_path, CARD.bus_id) == ""
