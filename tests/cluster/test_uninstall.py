"""Aliquot is taken away, as docs/install.md says: with pods still running, and with none."""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.auditor import audit
from tests.cluster.contents import collections
from tests.cluster.installation import NAMESPACE, RUN, Installation
from tests.cluster.test_faults import is_turned_away
from tests.cluster.test_journey import PATIENCE_S, client
from tests.cluster.test_upgrade import begin, check_top

pytestmark = pytest.mark.cluster

CRDS = ("gpunodes.aliquot.dev", "gpupools.aliquot.dev", "gpuquotas.aliquot.dev")
OF_OTHERS = ("*/containerd/*", "*/_var_lib_containerd/*", "*/layers/var/upper/log/*")
"""Images are the container runtime's, and the logs of pods that are gone the kubelet's, to clear away."""
OF_THE_BOX = {
    *("own/_var_lib_aliquot", "own/_run_aliquot"),
    *("layers/var/upper/lib/aliquot", "layers/run/upper/aliquot"),
}
"""The two directories that must not lie on an overlay, and where they are mounted; that they are empty is looked at."""


@pytest.fixture
def goes(installed: Installation) -> Iterator[Installation]:
    """An installation that a test takes away: it is installed again after it."""
    yield installed
    if not installed.kubectl.find("deployments.apps", "aliquot-webhook", NAMESPACE):
        installed.install()
    installed.await_services()


def remove_files(installed: Installation) -> None:
    """The first step of taking it away."""
    installed.release.upgrade("--set", "agent.removeFiles=true")


def uninstall(installed: Installation) -> None:
    """Return when none of its pods is there any more."""
    installed.release.helm("uninstall", "aliquot")
    wait_for(
        "Aliquot's pods to go", lambda: not installed.kubectl.list("pods", NAMESPACE), deadline=PATIENCE_S
    )


def remover(installed: Installation) -> dict[str, Any] | None:
    """The pod that removes the node's files, where it is the only agent's."""
    found = installed.kubectl.list("pods", NAMESPACE, labelSelector="app.kubernetes.io/component=agent")
    removes = [pod for pod in found if pod["spec"]["containers"][0]["command"] == ["sh", "-c"]]
    return removes[0] if removes and len(found) == 1 else None


def test_pods_with_slices_outlive_it(goes: Installation):
    """Nothing that they use is removed, their limits hold without anybody, and another installation takes them over."""
    steady = begin(goes, "steady-0", "steady-1")
    remove_files(goes)
    refusal = wait_for("the refusal to remove anything", lambda: refusals(goes), PATIENCE_S)
    assert all(pod.uid in refusal for pod in steady), refusal
    uninstall(goes)
    goes.kubectl.apply(client("late"))
    goes.kubectl.wait_for("pods", "late", is_turned_away, PATIENCE_S)
    for pod in steady:
        pod.check_time()
        pod.check()
    audit(goes)
    goes.kubectl.delete("pods", "late", grace=0)
    goes.install()
    check_top(goes, steady)
    for pod in steady:
        pod.check_time()
        pod.check()


def refusals(installed: Installation) -> str:
    """Why files were not removed: what the pod says that should have removed them, and is not ready."""
    pod = remover(installed)
    if pod is None or not pod["status"].get("containerStatuses"):
        return ""
    assert not pod["status"]["containerStatuses"][0]["ready"]
    name, said = pod["metadata"]["name"], ""
    for previous in (False, True):
        try:
            said += installed.kubectl.logs(name, namespace=NAMESPACE, previous=previous)
        except ApiError:  # it starts, or has not ended yet
            continue
    return said if "pods with slices are still on this node" in said else ""


def test_without_pods_nothing_of_it_is_left(goes: Installation):
    """Neither on the node nor in the cluster, once the steps of docs/install.md are done."""
    remove_files(goes)
    wait_for("the files to be removed", lambda: has_removed(goes), PATIENCE_S)
    uninstall(goes)
    for crd in CRDS:
        goes.kubectl.delete("customresourcedefinitions.apiextensions.k8s.io", crd, "")
        goes.kubectl.wait_gone("customresourcedefinitions.apiextensions.k8s.io", crd, PATIENCE_S, "")
    goes.kubectl.delete("namespaces", NAMESPACE, "")
    goes.kubectl.wait_gone("namespaces", NAMESPACE, PATIENCE_S, "")
    await_nothing(lambda: [*on_node(goes), *in_cluster(goes)])


def has_removed(installed: Installation) -> bool:
    """Whether the pod that removes the node's files says so by being ready."""
    pod = remover(installed)
    statuses = pod["status"].get("containerStatuses", ()) if pod else ()
    return any(status["ready"] for status in statuses)


def await_nothing(left: Callable[[], list[str]]) -> None:
    """Return once nothing is left: kubelet and API server clear away what was a pod's or a resource's by and by."""
    found = list[str]()

    def is_empty() -> bool:
        try:
            found[:] = left()
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return False  # a kind of object was told of, and has gone
        return not found

    try:
        wait_for("nothing to be left", is_empty, PATIENCE_S)
    except TimeoutError as error:
        raise AssertionError(f"left: {found}") from error


def on_node(installed: Installation) -> list[str]:
    """What the node has that names Aliquot, or lies in its directories."""
    box = installed.node.box
    written = [str(box.root / part) for part in ("layers", "own")]
    others = [word for path in OF_OTHERS for word in ("-not", "-path", path)]
    at_ease = "-ignore_readdir_race"
    found = box.run("find", *written, at_ease, "-name", "*aliquot*", *others).splitlines()
    ours = box.run(
        "find", "/var/lib/aliquot", RUN.removesuffix("/host"), at_ease, "-mindepth", "1"
    ).splitlines()
    return ours + [path for path in found if path.removeprefix(f"{box.root}/") not in OF_THE_BOX]


def in_cluster(installed: Installation) -> list[str]:
    """Objects that name Aliquot, or are of its namespace: of all kinds, but for events, which end by themselves."""
    found = list[str]()
    for path in collections(installed.kubectl):
        for item in installed.kubectl.request("GET", path)["items"]:
            metadata = item["metadata"]
            words = [metadata["name"], metadata.get("namespace", ""), *metadata.get("annotations", {})]
            if any("aliquot" in word for word in words):
                found.append(f"{path}: {metadata.get('namespace', '')}/{metadata['name']}")
    return found
