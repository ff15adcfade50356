"""Room that others have left for a pod: it is the pod's own, whatever others are guaranteed."""

import pytest

from aliquot.kube.objects import Pod
from aliquot.request.host_resources import HostShare
from aliquot.scheduler_ext.controllers.ledger_cleanup import RESERVATION_SECONDS
from tests.unit.scheduler_ext.evicting import Evicting, dry_run
from tests.unit.scheduler_ext.neighbours import waiter
from tests.unit.scheduler_ext.teams import quota


def beside_a_guarantee() -> tuple[Evicting, Pod]:
    """A pod that borrows, for which another has been told to leave: as much is free beside what is guaranteed."""
    here = Evicting("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(24, None, None)))
    here.runs("low", "n1-a", 16, priority=1)
    here.runs("firm", "n1-b", 16, priority=500)
    pod = waiter(16)
    assert here.wants(pod) == []
    assert here.look() == ["low"]
    return here, pod


@pytest.mark.parametrize("loss", ["a card fails", "a node is cordoned", "the last slice of a node goes"])
def test_room_that_others_left_stays_whatever_others_are_guaranteed(loss: str) -> None:
    """What the pod may have beside a guarantee was judged when it had others leave; else they left in vain."""
    here, pod = beside_a_guarantee()
    if loss == "a card fails":
        here.card_fails("n2-a")
    else:
        here.ledger.hosts.put_node("n2", HostShare(64_000, 64 * 1024, 1), closed=loss == "a node is cordoned")
        if loss == "the last slice of a node goes":
            here.runs("little", "n2-a", 1, namespace="owner")
    other = waiter(1)
    assert here.wants(other) == [], "what is kept for the owner is kept from everybody else"
    assert here.look(10) == ["low"]
    assert here.held(pod) == "n1"
    here.ends("low")
    assert here.held(pod) == "n1"
    assert here.filter.would_place(pod, here.filter.request_of(pod), ["n1"])
    assert dry_run(here, pod) == ["n1"]
    assert here.wants(pod) == ["n1"]


def test_room_that_others_left_stays_while_it_is_reserved() -> None:
    """kube-scheduler may not get the answer, and ask again when less is free than others are guaranteed."""
    here, pod = beside_a_guarantee()
    here.ends("low")
    assert here.wants(pod) == ["n1"]
    here.look(2)
    here.card_fails("n2-a")
    assert here.wants(pod) == ["n1"]
    here.now += RESERVATION_SECONDS
    assert here.ledger.expire(RESERVATION_SECONDS) == [pod.metadata.uid]
    here.look(2)
    assert here.held(pod) == "n1"


def test_room_that_others_left_is_lost_to_a_limit() -> None:
    """It would not let in a pod that runs no more, either."""
    here, pod = beside_a_guarantee()
    here.quotas.put(quota("most", "default", limit=(32, None, None)))
    here.look(2)
    assert here.held(pod) == "n1"
    here.quotas.put(quota("most", "default", limit=(31, None, None)))
    here.look(2)
    assert here.held(pod) == ""
    here.ends("low")
    assert here.wants(pod) == []


def test_room_is_given_to_a_higher_pod_and_is_ones_own_no_more() -> None:
    """What it gets later is judged as for any pod."""
    here, pod = beside_a_guarantee()
    here.ends("low")
    here.card_fails("n2-a")
    here.runs("more", "n2-b", 16, namespace="owner", priority=500)
    urgent = waiter(16, priority=300, namespace="owner")
    assert here.wants(urgent) == ["n1"]
    here.look(2)
    assert here.held(pod) == ""
    here.ends(urgent.metadata.uid)
    here.ledger.release(urgent.metadata.uid)
    assert here.wants(pod) == [], "of 16 GiB that are free 8 are kept for the owner"


class Impatient(Evicting):
    """kube-scheduler asks for a pod after each eviction."""

    pod: Pod | None = None

    def __init__(self, *nodes: str) -> None:
        super().__init__(*nodes)
        self.placed: list[bool] = []

    async def evict_pod(self, namespace: str, name: str, uid: str, /) -> None:
        """Evict a pod, which is gone at once."""
        await super().evict_pod(namespace, name, uid)
        self.ends(uid)
        if self.pod is not None:
            self.placed.append(bool(self.place_of(self.pod)))


def test_room_is_a_pods_own_only_once_all_have_left_that_it_is_to_have_it_from() -> None:
    """It has room on a node at once; what others are guaranteed lets it in when both borrowers have left another."""
    here = Impatient("n1", "n2")
    here.quotas.put(quota("owner", "owner", guaranteed=(32, None, None), reclaim=True))
    here.quotas.put(quota("other", "other", guaranteed=(32, None, None)))
    for number, where in enumerate(("n1-a", "n1-a", "n1-b", "n1-b")):
        here.runs(f"guest-{number}", where, 8, namespace="guest", second=number)
    here.nodes = ("n2",)
    here.pod = waiter(16, priority=0, namespace="owner")
    assert here.wants(here.pod) == []
    assert len(here.look()) == 2
    assert here.placed == [False, True]


def test_what_is_ones_own_stays_so_when_a_higher_pod_looks_in_vain() -> None:
    """All that is held for lower ones is put aside while it looks."""
    here, pod = beside_a_guarantee()
    here.card_fails("n2-a")
    assert here.wants(waiter(16, priority=300, **{"aliquot.dev/gpu": "2"})) == []
    assert here.held(pod) == "n1"
    here.ends("low")
    assert here.wants(pod) == ["n1"]
