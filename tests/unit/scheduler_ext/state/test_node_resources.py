"""What is left of nodes' CPU, memory and slices."""

import random

import msgspec
import pytest

from aliquot.kube.objects import PodSpec
from aliquot.request.host_resources import HostShare, host_share, read_host
from aliquot.scheduler_ext.cards.card_table import PLENTY, CardTable
from aliquot.scheduler_ext.state.node_resources import NodeResources
from aliquot.scheduler_ext.state.pods import PlacedPod
from tests.unit.scheduler_ext.placing import state


def container(cpu: str, memory: str = "0", restart: str = "", **more: object) -> dict[str, object]:
    """A container that requests this."""
    resources = {"requests": {"cpu": cpu, "memory": memory}, **more}
    return {"name": "c", "resources": resources, "restartPolicy": restart}


def sliced(count: int, restart: str = "") -> dict[str, object]:
    """A container of so many slices."""
    resources = {"limits": {"aliquot.dev/gpu": str(count)}}
    return {"name": "c", "resources": resources, "restartPolicy": restart}


PEAKS = {
    "containers add up": ([], [container("1", "1Gi"), container("500m", "1Mi")], HostShare(1500, 1025)),
    "a limit stands in for a request": (
        [], [{"name": "c", "resources": {"limits": {"cpu": "2"}}}], HostShare(2000, 0),
    ),
    "a request counts, not the limit": ([], [container("1", limits={"cpu": "2"})], HostShare(1000, 0)),
    "a large init container is the peak": ([container("3")], [container("1")], HostShare(3000, 0)),
    "sidecars run beside later init containers and beside all": (
        [container("1", restart="Always"), container("3")], [container("2")], HostShare(4000, 0),
    ),
    "what cannot be read is nothing": ([], [container("many")], HostShare(0, 0)),
    "an init container's slices go to those after it, a sidecar keeps its own": (
        [sliced(1, restart="Always"), sliced(3)], [sliced(1), sliced(1)], HostShare(0, 0, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("init", "regular", "expected"), PEAKS.values(), ids=PEAKS.keys())
def test_what_a_pod_takes(init: list[object], regular: list[object], expected: HostShare):
    """Each sentence above holds, for the webhook's pods and for those that the extender follows."""
    spec = {"initContainers": init, "containers": regular, "nodeName": "n"}
    assert host_share(msgspec.convert(spec, PodSpec)) == expected
    followed = msgspec.json.decode(msgspec.json.encode({"spec": spec}), type=PlacedPod)
    assert followed.spec.host == expected
    assert not followed.spec.containers
    assert not followed.spec.init_containers


def test_what_is_left_follows_pods_and_nodes_in_any_order():
    """After every random change each node has what it allows less what its pods request."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    dice, table = random.Random(seed), CardTable()
    hosts = NodeResources(table)
    nodes: dict[str, HostShare] = {}
    pods: dict[str, tuple[str, HostShare]] = {}
    for _ in range(400):
        name, uid = f"n{dice.randint(0, 3)}", f"u{dice.randint(0, 9)}"
        match dice.randint(0, 4):
            case 0:
                nodes[name] = HostShare(dice.randint(1, 9000), dice.randint(1, 9000), dice.randint(0, 9))
                hosts.put_node(name, nodes[name])
            case 1:
                nodes.pop(name, None)
                hosts.drop_node(name)
            case 2:
                pods[uid] = (name, HostShare(dice.randint(0, 900), dice.randint(0, 900), dice.randint(0, 3)))
                hosts.put_pod(uid, *pods[uid])
            case 3:
                pods.pop(uid, None)
                hosts.drop_pod(uid)
            case _:
                table.put(name, [state(f"{name}-0")])
        for node in table.nodes():
            row = table.rows_of([node])[0]
            whole = nodes.get(node, HostShare(PLENTY, PLENTY, PLENTY))
            used = sum((share for at, share in pods.values() if at == node), HostShare())
            left = whole - used if node in nodes else whole
            assert (table.host_cpu[row], table.host_mib[row]) == (left.cpu_milli, left.memory_mib)
            assert (table.host_slices[row], table.whole_slices[row]) == (left.slices, whole.slices)
            assert hosts.slices_left(node) == left.slices


def test_a_node_that_does_not_say_has_plenty_but_of_slices():
    """As from an API server's object without status: no kubelet has any yet."""
    table = CardTable()
    table.put("n", [state("c")])
    NodeResources(table).put_node("n", read_host({}))
    assert (table.host_cpu[0], table.host_slices[0]) == (PLENTY, 0)
