"""The ways of services to the API server break, and what comes by them is lost or too old."""

import os
import signal

from tests.integration.chaos.chaos import Act, Chaos
from tests.integration.chaos.guests import create, delete
from tests.integration.chaos.place import HISTORY
from tests.integration.wires import Mode

COUNTER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "counter", "namespace": "kube-system"},
}


def cut(chaos: Chaos) -> str:
    """No connection to the API server while a pod comes and another one goes."""
    return _while(chaos, Mode.CUT)


def deafen(chaos: Chaos) -> str:
    """What it says arrives, and no answer."""
    return _while(chaos, Mode.DEAF)


def _while(chaos: Chaos, mode: Mode) -> str:
    name = chaos.dice.choice(list(chaos.place.wires))
    wire = chaos.place.wires[name]
    wire.set(mode)
    try:
        said = [act(chaos) for act in (create, delete)]
    finally:
        wire.set(Mode.CARRIES)
    return f"{name}, and meanwhile {said}"


def outrun(chaos: Chaos) -> str:
    """Somebody is away for longer than the API server's watches can be resumed from: 410, and all is listed anew."""
    name = chaos.dice.choice(list(chaos.place.wires))
    wire, process = chaos.place.wires[name], chaos.place.cluster.processes[name]
    os.kill(process.pid, signal.SIGSTOP)
    try:
        wire.set(Mode.CUT)
        said = [act(chaos) for act in (create, delete)]
        chaos.place.kubectl.apply(COUNTER)
        for number in range(HISTORY):
            chaos.place.kubectl.patch("configmaps", "counter", {"data": {"n": str(number)}}, "kube-system")
    finally:
        wire.set(Mode.CARRIES)
        os.kill(process.pid, signal.SIGCONT)
    return f"{name}, and meanwhile {said}"


ACTS = (
    Act("a way to the API server is cut", 2, cut),
    Act("a way to the API server loses all answers", 2, deafen),
    Act("a watch is too old to be resumed", 1, outrun),
)
