"""The extender is killed at each step between filter and a bound pod, and starts among a thousand pods."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import Document, Extender, create, two_nodes
from tests.integration.faults.crowds import crowd
from tests.integration.faults.living import promised_by
from tests.integration.journey.auditor import check_cards, check_promise, placement_of
from tests.integration.proxies import Fault, Proxy
from tests.integration.wires import lead_through

SIZES = {f"{node}-{card}": 16384 for node in ("n1", "n2") for card in "ab"}
NODES, PODS = 25, 1000
LIST = "/api/v1/pods?limit"


class Scene:
    """An extender behind a proxy that can hold its Bindings up; one cluster for all tests."""

    def __init__(self, cluster: PocketCluster, directory: Path) -> None:
        self.cluster = cluster
        server = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        self.proxy = Proxy(server, directory / "proxy")
        self.extender = Extender(cluster)
        kubeconfig = lead_through(cluster, self.proxy.url, directory / "kubeconfig", self.proxy.tls.ca)
        self.extender.process.argv = [
            str(kubeconfig) if word == str(cluster.kubeconfig) else word
            for word in self.extender.process.argv
        ]
        self.extender.start()

    def die_at(self, fault: Fault, pod: Document) -> None:
        """Have a Binding come to a step, and kill who sent it there."""
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/binding"
        self.proxy.begin(path, fault)
        call = self.extender.send_bind(pod, "n1")
        wait_for("the Binding", lambda: path in self.proxy.seen)
        if fault is Fault.MUTE:
            wait_for("the pod to be bound", lambda: placement_of(self.now(pod)))
        self.extender.process.kill()
        call.close()

    def arrive(self, pod: Document) -> None:
        """What was held up goes on its way."""
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/binding"
        self.proxy.end(path)

    def now(self, pod: Document) -> Document:
        """A pod as it is."""
        return self.cluster.kubectl.get("pods", pod["metadata"]["name"])

    def gone(self, pod: Document) -> None:
        """A pod is deleted at once."""
        self.cluster.kubectl.delete("pods", pod["metadata"]["name"], grace=0)

    def audit(self) -> None:
        """Pods and extender agree, and no card has more than it holds."""
        pods = self.cluster.kubectl.list("pods")
        check_cards(SIZES, [placement for placement in map(placement_of, pods) if placement])
        for pod in pods:
            if placement_of(pod):
                check_promise(pod)
        wait_for("the extender to agree", lambda: self.extender.promised() == promised_by(self.cluster))


@pytest.fixture(scope="module", name="running")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Nodes with two cards each, and all of it."""
    root = tmp_path_factory.mktemp("k")
    with two_nodes(root / "c") as cluster:
        scene = Scene(cluster, root)
        yield scene
        scene.extender.process.stop()
        scene.proxy.close()


@pytest.fixture(name="scene")
def clean_up(running: Scene) -> Iterator[Scene]:
    """The same without a pod before and after; audited."""
    yield running
    running.audit()
    for pod in running.cluster.kubectl.list("pods"):
        running.gone(pod)
    wait_for("nothing to be promised", lambda: not running.extender.places())


STEPS: dict[str, Callable[[Scene, Document], None]] = {
    "after filter": lambda scene, _: scene.extender.process.kill(),
    "the Binding on its way": lambda scene, pod: scene.die_at(Fault.HOLD, pod),
    "the pod bound, and no answer yet": lambda scene, pod: scene.die_at(Fault.MUTE, pod),
}


@pytest.mark.slow
@pytest.mark.parametrize("deleted", [False, True], ids=["", "the pod goes, too"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_it_leaves_no_ghost(scene: Scene, step: str, deleted: bool) -> None:
    """The next process completes what was begun, or nothing is left of it; the Binding may come when it is there.

    One that comes later still, when its cards are another's, is the node's to refuse (`plugin/gate/gate.py`).
    """
    pod, other = create(scene.cluster, gib=12), create(scene.cluster, gib=12)
    assert scene.extender.filter(pod, "n1")["NodeNames"] == ["n1"]
    STEPS[step](scene, pod)
    if deleted:
        scene.gone(pod)
    scene.extender.start()
    if step != "after filter":
        scene.arrive(pod)
        expected = {} if deleted else {"n1-a": 12288}
        wait_for("the Binding to count", lambda: scene.extender.promised() == expected)
    wait_for("another pod to be bound", lambda: scene.extender.bind(other, "n1") == "")
    if deleted:
        wait_for("it to be alone", lambda: list(scene.extender.promised().values()) == [12288])
    else:
        wait_for("the pod to be bound", lambda: scene.extender.bind(pod, "n1") == "")
        assert placement_of(scene.now(pod))
    scene.audit()


@pytest.mark.slow
def test_a_cold_start_among_a_thousand_pods(tmp_path: Path) -> None:
    """Not ready, and no answer, before pods have been read; then the answers of the process before it."""
    with crowd(tmp_path / "c", NODES, PODS) as cluster:
        scene = Scene(cluster, tmp_path)
        extender, names = scene.extender, [f"n{number}" for number in range(NODES)]
        try:
            for gib in (1, 2, 4, 8) * 5:
                placed = extender.filter(one := create(cluster, gib), *names)["NodeNames"]
                assert extender.bind(one, placed[0]) == ""
            wait_for("all to be counted", lambda: extender.places() == PODS + 20)
            probes = [create(cluster, gib) for gib in (1, 3, 7, 12, 16)]
            warm = [extender.post("/filter-dryrun", {"Pod": probe, "NodeNames": names}) for probe in probes]
            extender.process.kill()
            scene.proxy.seen.clear()
            scene.proxy.begin(LIST, Fault.HOLD)
            extender.process.start()
            wait_for("the list of pods", lambda: any(path.startswith(LIST) for path in scene.proxy.seen))
            assert extender.get("/readyz").status == 503
            assert "pods not read yet" in extender.filter(probes[0], *names)["Error"]
            scene.proxy.end(LIST)
            wait_for("it to be ready", lambda: extender.get("/readyz").status == 200)
            assert [extender.post("/filter-dryrun", {"Pod": p, "NodeNames": names}) for p in probes] == warm
            assert {len(answer.get("NodeNames") or ()) for _, answer in warm} > {0}
            assert extender.promised() == promised_by(cluster)
        finally:
            extender.process.stop()
            scene.proxy.close()
