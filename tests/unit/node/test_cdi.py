"""CDI specs: their JSON, and files that appear whole or not at all."""

import json
import stat
from pathlib import Path

import pytest

from aliquot.node.cdi import (
    ContainerEdits,
    Device,
    DeviceNode,
    Hook,
    Mount,
    Spec,
    read_spec,
    remove_spec,
    write_spec,
)

SPEC = Spec(
    kind="aliquot.dev/slice",
    devices=(
        Device(
            name="n0nce",
            container_edits=ContainerEdits(
                env=("NVIDIA_VISIBLE_DEVICES=void",),
                device_nodes=(
                    DeviceNode(path="/dev/nvidia0", host_path="/host/dev/nvidia0", permissions="rw"),
                ),
                mounts=(
                    Mount(
                        host_path="/h/control", container_path="/run/aliquot/control", options=("ro", "bind")
                    ),
                ),
                hooks=(
                    Hook(
                        hook_name="createContainer", path="/usr/bin/nvidia-ctk", args=("nvidia-ctk", "hook")
                    ),
                ),
            ),
        ),
    ),
)


def test_a_spec_is_written_as_runtimes_read_it(tmp_path: Path):
    """Field names are those of the specification; what is not given is left out."""
    path = write_spec(tmp_path / "cdi", "aliquot-n0nce", SPEC)
    assert path == tmp_path / "cdi" / "aliquot-n0nce.json"
    edits = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/host/dev/nvidia0", "permissions": "rw"}],
        "mounts": [
            {"hostPath": "/h/control", "containerPath": "/run/aliquot/control", "options": ["ro", "bind"]}
        ],
        "hooks": [
            {"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk", "args": ["nvidia-ctk", "hook"]}
        ],
    }
    assert json.loads(path.read_text()) == {
        "cdiVersion": "0.6.0",
        "kind": "aliquot.dev/slice",
        "devices": [{"name": "n0nce", "containerEdits": edits}],
    }


def test_a_spec_is_readable_by_all_and_nothing_else_is_left(tmp_path: Path):
    """Runtimes may run as anybody; a temporary file never stays in the watched directory."""
    path = write_spec(tmp_path, "a", SPEC)
    write_spec(tmp_path, "a", SPEC)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_a_reader_never_sees_half_a_spec(tmp_path: Path):
    """A file that is replaced keeps its old content for those who have it open."""
    path = write_spec(tmp_path, "a", SPEC)
    with path.open() as before:
        write_spec(tmp_path, "a", Spec(kind="aliquot.dev/slice", devices=()))
        assert json.load(before)["devices"]
    assert read_spec(path).devices == ()


def test_a_failed_write_leaves_the_old_spec(tmp_path: Path):
    """What cannot be encoded changes nothing on disk."""
    path = write_spec(tmp_path, "a", SPEC)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_spec(tmp_path, "a", Spec(kind="k", devices=(object(),)))  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_a_spec_is_read_back(tmp_path: Path):
    """What is written is what is read; specs of others, with fields we do not know, are read too."""
    assert read_spec(write_spec(tmp_path, "a", SPEC)).devices == SPEC.devices
    foreign = tmp_path / "nvidia.json"
    foreign.write_text('{"cdiVersion":"0.8.0","kind":"nvidia.com/gpu","annotations":{},"devices":[]}')
    assert read_spec(foreign).kind == "nvidia.com/gpu"
    foreign.write_text("{")
    with pytest.raises(ValueError, match="truncated"):
        read_spec(foreign)


def test_removing_is_done_once_or_twice(tmp_path: Path):
    """A spec that is gone already is fine."""
    path = write_spec(tmp_path, "a", SPEC)
    remove_spec(tmp_path, "a")
    remove_spec(tmp_path, "a")
    assert not path.exists()


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "a\n"])
def test_names_stay_in_the_directory(tmp_path: Path, name: str):
    """A name that could lead elsewhere is refused."""
    with pytest.raises(ValueError, match="no name for a CDI spec"):
        write_spec(tmp_path, name, SPEC)
