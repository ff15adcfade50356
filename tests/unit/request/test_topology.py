"""Words about links: those that agents publish, and those that pods and pools write."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.api.links import MOST_NVLINKS, UNKNOWN, Level, Link, read_links, write_links
from aliquot.crds.gpu_pool import PoolSpec
from aliquot.kube.objects import Pod
from aliquot.request.pod_request import RequestError, SliceRequest, read_pod_request
from aliquot.request.topology import Rdma, Topology

LINKS = st.lists(st.builds(Link, st.sampled_from(Level), st.integers(0, MOST_NVLINKS)), max_size=15)


@given(LINKS)
def test_links_survive_their_words(links: list[Link]):
    """What the agent writes is what the extender reads; what is all unknown takes no room."""
    text = write_links(links)
    assert read_links(text, len(links)) == tuple(links)
    assert bool(text) == any(link != UNKNOWN for link in links)


@given(st.text(max_size=80), st.integers(0, 15))
def test_any_text_is_read(text: str, count: int):
    """What makes no sense is unknown; nothing is worth more than the most that there can be."""
    links = read_links(text, count)
    assert len(links) == count
    assert all(0 <= link.worth <= Link(Level.INT, MOST_NVLINKS).worth for link in links)


def test_links_are_spelt_as_people_know_them():
    """The words of nvidia-smi, with the number of NVLinks behind them."""
    assert write_links([Link(Level.NODE, 18), Link(Level.SYS), UNKNOWN]) == "NODE18 SYS ?"
    assert read_links("NODE18 SYS ? PIX999 fast", 5) == (
        Link(Level.NODE, 18), Link(Level.SYS), UNKNOWN, UNKNOWN, UNKNOWN,
    )  # fmt: skip
    assert read_links("PIX99", 1) == (Link(Level.PIX, MOST_NVLINKS),)
    assert read_links("NODE18 SYS", 3) == (UNKNOWN,) * 3


def read(annotations: dict[str, str], limits: dict[str, str] | None = None) -> SliceRequest:
    """The slice of a pod of one container of two cards."""
    spec = {
        "containers": [{"name": "main", "resources": {"limits": {"aliquot.dev/gpu": "2", **(limits or {})}}}]
    }
    request = read_pod_request(msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, Pod))
    assert request.containers[0].slice
    return request.containers[0].slice


def test_a_pod_says_how_links_and_nics_count():
    """For all containers or for one, in any case of letters; silence says nothing."""
    assert (read({}).topology, read({}).rdma) == (None, Rdma.NONE)
    assert read({"aliquot.dev/topology": "NVLink"}).topology is Topology.NVLINK
    for_one = {"aliquot.dev/topology": "none", "main.aliquot.dev/topology": "best-links"}
    assert read(for_one).topology is Topology.BEST_LINKS
    assert read({"other.aliquot.dev/rdma": "pcie"}).rdma is Rdma.NONE
    assert read({"aliquot.dev/rdma": "pcie"}).rdma is Rdma.PCIE


def test_who_asks_for_an_rdma_device_wants_cards_near_it():
    """Unless the pod says otherwise; none of it is no ask."""
    assert read({}, {"rdma/hca_shared": "1"}).rdma is Rdma.NEAR
    assert read({"aliquot.dev/rdma": "none"}, {"rdma/hca_shared": "1"}).rdma is Rdma.NONE
    assert read({}, {"rdma/hca_shared": "0"}).rdma is Rdma.NONE


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (
            "aliquot.dev/topology",
            "'fast' is none of none, best-effort, best-links, numa, bridge, switch, nvlink",
        ),
        ("main.aliquot.dev/rdma", "'fast' is none of none, near, numa, pcie"),
    ],
)
def test_other_words_are_refused_with_those_that_there_are(annotation: str, message: str):
    """In the webhook, where people read it."""
    with pytest.raises(RequestError, match=rf"container 'main': {annotation}: {message}"):
        read({annotation: "fast"})


def test_a_pool_demands_no_links():
    """A word that the schema refuses, and an old API server let in, is passed over."""
    pools = [msgspec.convert({"topology": word}, PoolSpec) for word in ("none", "nvlink")]
    assert [pool.preference.topology for pool in pools] == [Topology.NONE, None]
