"""Services of ours and of the cluster are killed, or stand still for a while."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial

from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.chaos.chaos import Act, Chaos
from tests.integration.chaos.guests import create, force
from tests.integration.chaos.place import EXTENDERS, Place

LONGEST_STILL_S = 3.0

Choice = Callable[[Place], tuple[str, ...]]


def agents(place: Place) -> tuple[str, ...]:
    """All nodes'."""
    return place.agents


def kubelets(place: Place) -> tuple[str, ...]:
    """All nodes'."""
    return tuple(f"kubelet-{name}" for name in place.nodes)


def one(name: str) -> Choice:
    """This one."""
    return lambda _: (name,)


def extenders(_: Place) -> tuple[str, ...]:
    """Both."""
    return EXTENDERS


def kill(choice: Choice, chaos: Chaos) -> str:
    """SIGKILL, and started again."""
    name = chaos.dice.choice(choice(chaos.place))
    chaos.place.cluster.restart(name)
    return name


def freeze(choice: Choice, chaos: Chaos) -> str:
    """It stands still for a moment, in which a pod comes and another one goes."""
    name = chaos.dice.choice(choice(chaos.place))
    process = chaos.place.cluster.processes[name]
    end = time.monotonic() + chaos.dice.uniform(0.2, LONGEST_STILL_S)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        said = [] if name == "apiserver" else [act(chaos) for act in (create, force)]
        wait_for("the moment to be over", lambda: time.monotonic() >= end)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    return f"{name}, and meanwhile {said}"


def kill_node(chaos: Chaos) -> str:
    """Agent and kubelet of a node at once; they come back in any order."""
    node = chaos.dice.choice(list(chaos.place.nodes.values()))
    names = chaos.dice.sample([node.agent, f"kubelet-{node.name}"], 2)
    for name in names:
        chaos.place.cluster.kill(name)
    # The agent is ready when the kubelet knows it, so the kubelet cannot be waited for behind it.
    for name in (f"kubelet-{node.name}", node.agent):
        chaos.place.cluster.restart(name)
    return f"{names}"


SERVICES = {
    "an agent": (4, agents),
    "a kubelet": (2, kubelets),
    "an extender": (3, extenders),
    "the webhook": (2, one("webhook")),
    "the scheduler": (2, one("scheduler")),
    "the API server": (2, one("apiserver")),
}
ACTS = (
    *(Act(f"{name} is killed", weight, partial(kill, choice)) for name, (weight, choice) in SERVICES.items()),
    *(Act(f"{name} stands still", 1, partial(freeze, choice)) for name, (_, choice) in SERVICES.items()),
    Act("agent and kubelet of a node are killed", 2, kill_node),
)
