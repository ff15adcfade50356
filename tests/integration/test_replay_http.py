"""A replay through a real extender, beside the same through the placing code alone."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from aliquot.cli.commands.replay_http import OverHttp
from aliquot.request.placement_policy import Policy, Preference
from aliquot.scheduler_ext.replay.run import Cluster, InProcess, Site, inflated, named, quiet, replay
from aliquot.scheduler_ext.replay.trace import TraceNode, TracePod, read_nodes, read_pods
from tests.unit.scheduler_ext.traces import write_nodes, write_pods


class Noted:
    """A site that notes where every pod went."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.places: dict[str, tuple[str, tuple[str, ...]] | None] = {}

    def place(self, uid: str, pod: TracePod, names: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
        """Place it."""
        self.places[uid] = self.site.place(uid, pod, names)
        return self.places[uid]

    def leave(self, uid: str) -> None:
        """A pod goes."""
        self.site.leave(uid)


def replayed(site: Site, nodes: dict[str, TraceNode], pods: Sequence[TracePod]) -> Noted:
    """All pods, placed."""
    noted = Noted(site)
    replay(Cluster(nodes), noted, pods, (90, 100), quiet)
    return noted


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Policy.FRAG_AWARE, Policy.SPREAD])
def test_the_same_pods_get_the_same_cards_over_http(tmp_path: Path, policy: Policy):
    """Node by node and card by card, those refused included; pods without cards too."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    dice = random.Random(seed)
    nodes = named(read_nodes(write_nodes(tmp_path / "nodes.csv", 12)), dice)
    pods = read_pods(write_pods(tmp_path / "pods.csv", 120, seed=seed))
    arriving = inflated(pods, 1.1 * Cluster(nodes).capacity, dice)
    preference = Preference(policy, policy)
    here = replayed(InProcess(nodes, preference), nodes, arriving)
    with OverHttp(nodes, preference) as site:
        there = replayed(site, nodes, arriving)
    assert there.places == here.places
    assert any(place is None for place in here.places.values())
