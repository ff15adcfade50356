"""CPU of nodes that groups wait for: kept for the members that have places, and nobody is evicted for it."""

from __future__ import annotations

import asyncio

import msgspec

from aliquot.kube.objects import Pod
from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.cards.card_table import PLENTY
from tests.unit.scheduler_ext.contended import PATIENCE, Contended
from tests.unit.scheduler_ext.drill import NODES, pod_in


def on_cpu(pod: Pod) -> Pod:
    """The pod, which asks for a processor as well."""
    body = msgspec.to_builtins(pod)
    body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    return msgspec.convert(body, Pod)


def short_of_cpu() -> tuple[Contended, list[Pod]]:
    """Nodes whose every card and processor is in use, and the pods that use them."""
    field = Contended()
    for name in NODES:
        field.ledger.hosts.put_node(name, HostShare(4000, PLENTY, 10))
    others = field.others(8, 0)
    for pod in others:
        field.ledger.hosts.put_pod(pod.metadata.uid, field.node_of(pod), HostShare(1000, 0, 1))
    return field, others


def test_cpu_is_kept_for_a_group_until_kube_scheduler_has_bound_it():
    """It counts CPU only for members that it is about to bind; whoever got the others' would keep the group waiting."""
    field, others = short_of_cpu()
    group = [on_cpu(pod_in("train", 8, priority=100)) for _ in range(2)]
    field.needs("train", 2)
    field.create(*group)
    assert not any(field.where(pod) for pod in group)
    for name in NODES:
        field.ledger.hosts.put_node(name, HostShare(5000, PLENTY, 10))
    assert len(field.rounds(2 * PATIENCE)) == 2
    for pod in field.leaving(others):
        field.leave(pod)
    for name in NODES:
        field.ledger.hosts.put_node(name, HostShare(4000, PLENTY, 10))
    assert all(field.where(pod) for pod in group)
    assert field.rounds(1) == []
    assert not field.where(on_cpu(pod_in("", 1, priority=100)))
    assert asyncio.run(field.bind_all(*group)) == [""] * 2


def test_nobody_leaves_for_cpu():
    """All of it is in use: kube-scheduler would give what becomes free to whom it asks for next."""
    field, _ = short_of_cpu()
    group = [on_cpu(pod_in("train", priority=100)) for _ in range(2)]
    field.needs("train", 2)
    field.create(*group)
    assert not any(field.where(pod) for pod in group)
    assert field.rounds() == []
    for name in NODES:
        field.ledger.hosts.put_node(name, HostShare(8000, PLENTY, 10))
    assert len(field.rounds(2 * PATIENCE)) == 2
