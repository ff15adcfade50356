"""The kubelet's own notes."""

import base64
import json
from pathlib import Path

import pytest

from aliquot.plugin.kubelet.checkpoint import Entry, read_checkpoint
from aliquot.plugin.pb.deviceplugin.v1beta1 import api_pb2

DATA = Path(__file__).parents[3] / "data" / "plugin"
INIT_POD = "579440e0-a5b1-4921-8e8c-c63689d36b11"


def test_a_real_checkpoint_names_plain_init_containers_too():
    """As a kubelet 1.36 wrote it; the answers in it were cut short, so they name no nonce."""
    entries = read_checkpoint(DATA / "kubelet_internal_checkpoint.json")
    mine = [entry for entry in entries if entry.pod_uid == INIT_POD]
    assert Entry(INIT_POD, "plaininit", "lab.example/vgpu", frozenset({"gpu0-s2"})) in mine
    assert Entry(INIT_POD, "main1", "lab.example/vgpu", frozenset({"gpu1-s0", "gpu0-s3"})) in mine
    assert len(entries) == 6


def test_notes_nested_too_deep_are_left_out(tmp_path: Path):
    """What cannot be understood never ends the agent."""
    path = tmp_path / "checkpoint"
    path.write_text('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert read_checkpoint(path) == ()


def test_the_nonce_is_read_from_the_answer_the_kubelet_kept(tmp_path: Path):
    """Another plugin's CDI devices are not ours."""
    names = ("nvidia.com/gpu=0", "aliquot.dev/slice=abc")
    answer = api_pb2.ContainerAllocateResponse(cdi_devices=[api_pb2.CDIDevice(name=name) for name in names])
    entry = {
        "PodUID": "u",
        "ContainerName": "c",
        "ResourceName": "aliquot.dev/gpu",
        "DeviceIDs": {"0": ["x"], "1": ["y"]},
        "AllocResp": base64.b64encode(answer.SerializeToString()).decode(),
    }
    path = tmp_path / "checkpoint"
    path.write_text(json.dumps({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 1}))
    assert read_checkpoint(path) == (Entry("u", "c", "aliquot.dev/gpu", frozenset("xy"), "abc"),)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"Data":{"PodDeviceEntries":[{"PodUID":7}]}}'])
def test_what_cannot_be_understood_tells_nothing(tmp_path: Path, content: str):
    """The format is the kubelet's own and may change."""
    (tmp_path / "checkpoint").write_text(content)
    assert read_checkpoint(tmp_path / "checkpoint") == ()


def test_an_empty_node_has_no_entries(tmp_path: Path):
    """Missing, or null as Go writes an empty list."""
    assert read_checkpoint(tmp_path / "none") == ()
    (tmp_path / "checkpoint").write_text(
        '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}'
    )
    assert read_checkpoint(tmp_path / "checkpoint") == ()
