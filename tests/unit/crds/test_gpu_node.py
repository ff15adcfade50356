"""The GPUNode object: arithmetic, JSON, and the schema that the cluster enforces."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot.crds.gpu_node import Card, GPUNode, GPUNodeStatus, MigInstance, Nic, Summary
from aliquot.crds.resources import GPU_NODES
from aliquot.kube.objects import KubeStruct, ObjectMeta

CRD = Path(__file__).parents[3] / "deploy" / "crds" / "gpunodes.yaml"
CARD = Card(uuid="GPU-1", memory_mib=16384, reserve_mib=384)


def test_slices_take_what_the_reserve_leaves():
    """Usable memory is what the reserve leaves, and never less than nothing."""
    assert CARD.usable_mib == 16000
    assert Card(uuid="x", memory_mib=5, reserve_mib=9).usable_mib == 0


def test_a_node_survives_its_json():
    """What the agent writes is what the extender reads; fields of later versions are passed over."""
    instance = MigInstance(uuid="MIG-1", profile="1g.18gb", memory_mib=16384, gi=7, ci=0)
    status = GPUNodeStatus(cards=(CARD, Card(uuid="GPU-2", memory_mib=1, mig_enabled=True, mig=(instance,))))
    node = GPUNode(metadata=ObjectMeta(name="n"), status=status)
    document = msgspec.json.decode(msgspec.json.encode(node))
    assert document["status"]["cards"][0]["memoryMiB"] == 16384
    document["status"]["later"] = document["status"]["cards"][0]["later"] = True
    assert msgspec.convert(document, GPUNode) == node


def schema() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the CRD's spec and the schema of its status."""
    spec = yaml.safe_load(CRD.read_text())["spec"]
    return spec, spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


@pytest.mark.parametrize(
    "card",
    [
        {"memoryMiB": 2**31},
        {"memoryMiB": -1},
        {"memoryMiB": 1, "cores": 101},
        {"memoryMiB": 1, "numaNode": -2},
    ],
)
def test_what_no_machine_has_is_not_read(card: dict[str, int]):
    """The scheduler counts in 64 bits, and a CRD of an older release may let more through."""
    document = {"metadata": {"name": "n"}, "status": {"cards": [{"uuid": "GPU-1", **card}]}}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(document), type=GPUNode)


def test_the_crd_is_where_the_code_looks_for_it():
    """Group, version, plural, scope and status subresource are those that the client uses."""
    spec, _ = schema()
    version = spec["versions"][0]
    assert (spec["group"], version["name"], spec["names"]["plural"]) == (
        GPU_NODES.group, GPU_NODES.version, GPU_NODES.plural,
    )  # fmt: skip
    assert spec["scope"] == "Cluster"
    assert version["subresources"] == {"status": {}}
    assert spec["names"]["kind"] == GPUNode(metadata=ObjectMeta()).kind


@pytest.mark.parametrize(
    ("struct", "where"),
    [
        (GPUNodeStatus, ()),
        (Card, ("cards",)),
        (MigInstance, ("cards", "mig")),
        (Nic, ("nics",)),
        (Summary, ("summary",)),
    ],
)
def test_the_schema_has_every_field_of_the_structs(struct: type[KubeStruct], where: tuple[str, ...]):
    """The API server prunes what its schema does not know, so none may be missing."""
    _, properties = schema()
    for name in where:
        properties = properties[name].get("items", properties[name])["properties"]
    assert set(properties) == {field.encode_name for field in msgspec.structs.fields(struct)}
