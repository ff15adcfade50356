"""Pools as the extender follows them: a change costs the nodes that it is for."""

import asyncio
from collections import Counter

from aliquot.crds.gpu_node import GPUNode
from aliquot.crds.gpu_pool import GPUPool, PoolSpec
from aliquot.kube.objects import Node, ObjectMeta
from aliquot.scheduler_ext.controllers.cluster_informer import ClusterInformer
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.unit.scheduler_ext.placing import card, node, resizer
from tests.unit.scheduler_ext.world import World


def test_pools_told_of_in_one_go_touch_their_nodes_once():
    """An extender that starts with twenty pools and thousands of nodes must not write every card twenty times."""
    ledger, touched = Ledger(lambda: 0.0), Counter[str]()
    feed = ClusterInformer(None, ledger, ForeignPlugins(()), resizer(World(), ledger))  # type: ignore[arg-type] - reads no cluster
    for name, zone in (("n1", "a"), ("n2", "b")):
        feed._nodes._put(name, Node(metadata=ObjectMeta(name=name, labels={"zone": zone})))
        feed._cards._put(name, GPUNode(metadata=ObjectMeta(name=name), status=node(card(f"card-{name}"))))
    ledger.on_change(lambda name: touched.update([name]))

    async def list_pools() -> None:
        for name, selector, percent in (
            ("y", {"zone": "a"}, 200),
            ("x", {"zone": "a"}, 150),
            ("z", {"zone": "c"}, 300),
        ):
            spec = PoolSpec(node_selector=selector, memory_percent=percent)
            feed._pools._put(name, GPUPool(metadata=ObjectMeta(name=name), spec=spec))

    asyncio.run(list_pools())
    assert touched == {"n1": 1}
    assert [ledger.table.cards(name)[0].extra_mib for name in ("n1", "n2")] == [8192, 0]
