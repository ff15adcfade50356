"""A replay for several seeds, and what they come to.

The same seed means the same order of pods, the same clones and the same names of nodes under every policy, so that
policies can be compared pair by pair.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aliquot.request.placement_policy import Preference
from aliquot.scheduler_ext.replay.run import (
    Cluster,
    Heard,
    InProcess,
    Site,
    churn,
    inflated,
    named,
    quiet,
    replay,
)
from aliquot.scheduler_ext.replay.trace import TraceNode, TracePod

MARKS = (90, 95, 100, 110, 120, 130, 140, 150)
"""How much has been asked for, in percent of the cards, when it is noted how much is allocated."""

Sites = Callable[[dict[str, TraceNode], Preference], Site]


@dataclass(frozen=True)
class Study:
    """What is replayed.

    Attributes:
        nodes: The cluster.
        pods: The pods.
        preference: For nodes and cards.
        load: How much is asked for, in parts of all cards.
        sample: Percentage of nodes that kube-scheduler looks at.
        departing: Pods leave again.
    """

    nodes: Sequence[TraceNode]
    pods: Sequence[TracePod]
    preference: Preference
    load: float = 1.0
    sample: int = 100
    departing: bool = False

    def run(self, seed: int, heard: Heard = quiet, sites: Sites = InProcess) -> dict[str, float]:
        """One seed: figure → percent of all cards."""
        dice = random.Random(seed)  # noqa: S311 - repeatable on purpose
        nodes = named(self.nodes, dice)
        cluster, site = Cluster(nodes, self.sample), sites(nodes, self.preference)
        if self.departing:
            found = churn(cluster, site, self.pods, self.load, dice, heard=heard)
            return {"allocated": found.allocated, "accepted": found.accepted}
        marks = [mark for mark in MARKS if mark <= self.load * 100]
        arriving = inflated(self.pods, self.load * cluster.capacity, dice)
        return {str(mark): share for mark, share in replay(cluster, site, arriving, marks, heard).items()}


@dataclass(frozen=True)
class Spread:
    """A figure over several seeds."""

    mean: float
    sd: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """Mean and standard deviation, which is 0 for one value."""
        return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)


def summed_up(runs: Sequence[dict[str, float]]) -> dict[str, Spread]:
    """What some seeds come to, figure by figure."""
    return {figure: Spread.of([run[figure] for run in runs]) for figure in runs[0]}
