"""The documents that an admin follows, followed: every command is run on a real cluster, and prints what is written."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.installation import NAMESPACE, ROOT, Installation
from tests.cluster.node import NAME as NODE
from tests.cluster.walkthroughs import stand_ins
from tests.cluster.walkthroughs.document import Document, Step, read_document
from tests.cluster.walkthroughs.reader import NAMES
from tests.cluster.walkthroughs.walk import Shell, Walk, WalkError

DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
NOTED = re.compile(r"^  ((?:kubectl|helm|aliquot) .*)$", re.MULTILINE)
"""A command in what helm prints after an installation."""
RELEASE = "aliquot deploy/charts/aliquot --namespace aliquot-system"
STEPS = {
    "install.md": (
        f"helm install {RELEASE} --values values.yaml --set enforcement=observe",
        "kubectl get gpunodes",
        "kubectl logs greedy",
        "kubectl -n aliquot-system exec daemonset/aliquot-agent -- aliquot top --once",
        "curl",
        f"helm upgrade {RELEASE} --reuse-values --set enforcement=enforce",
        "kubectl logs greedy",
        "aliquot why",
        f"helm upgrade {RELEASE}",
        "helm rollback aliquot",
        f"helm upgrade {RELEASE} --reuse-values --set agent.removeFiles=true",
        "helm uninstall aliquot",
    ),
    "migrate-from-hami.md": (
        f"helm install {RELEASE} --values values.yaml --values hami.yaml",
        "kubectl -n team-a apply -f examples/inference/vision.yaml --dry-run=server",
        "kubectl drain gpu-1",
        "kubectl label node gpu-1 gpu-",
        "kubectl patch node gpu-1",
        "kubectl label namespace team-a hami.io/webhook=ignore",
        "kubectl -n team-a logs vision",
        "aliquot why team-a/second",
        "kubectl get gpuquotas",
        "kubectl drain gpu-1",
        "kubectl label node gpu-1 aliquot.dev/gpu-node- gpu=on",
    ),
    "migrate-from-nvidia-device-plugin.md": (
        f"helm install {RELEASE} --values values.yaml --values beside.yaml",
        "aliquot why team-a/whole",
        "kubectl cordon gpu-1",
        "kubectl patch node gpu-1",
        "kubectl -n team-a logs whole",
        "kubectl logs embed",
        "kubectl label node gpu-1 aliquot.dev/gpu-node-",
    ),
}
"""What each document must not lose, in its order."""
NOT_RUN = {
    "install.md": (
        "docker buildx build --file deploy/images/Dockerfile --target agent",
        "docker buildx build --file deploy/images/Dockerfile --target control",
    ),
    "migrate-from-hami.md": ("helm upgrade aliquot", "helm uninstall hami"),
    "migrate-from-nvidia-device-plugin.md": (
        "kubectl drain gpu-1",
        "kubectl label node gpu-1 nvidia.com/gpu.deploy.device-plugin=false",
        "helm upgrade gpu-operator",
        "helm upgrade aliquot",
        "kubectl label node gpu-1 nvidia.com/gpu.deploy.device-plugin=true",
    ),
}
"""Commands that no test runs, by how they begin: they need what the cluster has not, a registry or another project."""

ELSEWHERE = {"mig": "tests/integration/journey/test_mig.py", "volcano": "tests/integration/test_volcano.py"}
"""Examples that need what this cluster has not, and the tests that have it."""


@pytest.mark.parametrize("name", STEPS)
def test_every_document_has_its_steps(name: str):
    """None is lost, and none is exempted from being run but those that are known."""
    document = read_document(DOCS / name)
    document.require(*STEPS[name])
    beginnings = NOT_RUN.get(name, ())
    assert len(document.not_run) == len(beginnings)
    for command, beginning in zip(document.not_run, beginnings, strict=True):
        assert command.startswith(beginning)


def follow(
    name: str, reader: Shell, cleared: Installation, before: Callable[[Step], None] = lambda _: None
) -> Walk:
    """Go through a document; where it goes wrong, the services' pods have their say, too."""
    walk = Walk(read_document(DOCS / name), reader, NAMES)
    try:
        walk.run(before)
    except WalkError as error:
        raise WalkError(f"{error}\n{cleared.report()}") from error
    return walk


def gone_before(cleared: Installation) -> Callable[[Step], None]:
    """Have the other project's device plugin gone when a document comes to remove its count."""

    def before(step: Step) -> None:
        if step.command.startswith("kubectl patch node"):
            stand_ins.leave_node(cleared)

    return before


def test_no_example_is_left_out():
    """Each folder is applied, or run, by the README beside them, or by the test that is named here."""
    document = read_document(EXAMPLES / "README.md")
    commands = " ".join(step.command for step in document.run)
    left = {
        path.name for path in EXAMPLES.iterdir() if path.is_dir() and f"examples/{path.name}/" not in commands
    }
    assert left == ELSEWHERE.keys()
    for name, test in ELSEWHERE.items():
        assert f'"{name}"' in (ROOT / test).read_text()
        assert any(f"examples/{name}/" in command for command in document.not_run)


@pytest.mark.cluster
def test_the_examples(user: Shell):
    """Applied as they are, they do what their README says."""
    Walk(read_document(EXAMPLES / "README.md"), user, NAMES).run()


@pytest.mark.cluster
def test_installing(reader: Shell, cleared: Installation):
    """From nothing to a limit that is observed, then enforced, and back to nothing; helm's own advice is taken."""
    walk = follow("install.md", reader, cleared)
    taken = {step.command for step in walk.document.run}
    noted = {
        command.replace("CHART", "deploy/charts/aliquot")
        for printed in walk.told
        for command in NOTED.findall(printed)
    }
    assert len(noted) >= 7
    assert noted - taken == set()
    assert leftovers(cleared) == []


@pytest.mark.cluster
def test_moving_from_hami(reader: Shell, cleared: Installation):
    """Node by node and namespace by namespace, and back."""
    with stand_ins.hami(cleared):
        follow("migrate-from-hami.md", reader, cleared, gone_before(cleared))


@pytest.mark.cluster
def test_moving_from_nvidias_device_plugin(reader: Shell, cleared: Installation):
    """Pods that wait for a whole card get it from Aliquot when the node has moved."""
    with stand_ins.nvidia(cleared):
        follow("migrate-from-nvidia-device-plugin.md", reader, cleared, gone_before(cleared))


@pytest.mark.cluster
def test_what_the_readme_types(reader: Shell, cleared: Installation):
    """Its lines for a cluster, as they stand: images from the reader's registry run, and the agent's pod is let in.

    The agent finds no driver, for the README's reader has real cards.
    """
    readme = read_document(ROOT / "README.md")
    typed = tuple(step for step in readme.steps if step.command.startswith(("kubectl", "helm")))
    lines = Document(readme.path, typed)
    cleared.run_kubectl("label", "node", NODE, "aliquot.dev/gpu-node=true")  # as GPU Feature Discovery would
    lines.require("kubectl create namespace", "kubectl label namespace", "helm install")
    Walk(lines, reader, NAMES).run()
    for name in ("aliquot-certs", "aliquot-webhook", "aliquot-scheduler"):
        reader.run(f"kubectl -n {NAMESPACE} rollout status deployment/{name} --timeout=240s")
        deployment = cleared.kubectl.get("deployments.apps", name, NAMESPACE)
        assert deployment["status"].get("readyReplicas") == deployment["spec"]["replicas"], cleared.report()
    labels = "app.kubernetes.io/component=agent"
    wait_for("the agent's pod", lambda: cleared.kubectl.list("pods", NAMESPACE, labelSelector=labels), 60)


def leftovers(cleared: Installation) -> list[str]:
    """What of Aliquot is in the cluster and on its node."""
    objects = cleared.ours().split()
    box = cleared.node.box
    places = ("/var/lib/aliquot", "/run/aliquot", "/run/cdi", "/var/lib/kubelet/device-plugins")
    files = [str(path) for place in places for path in box.path(place).glob("*")]
    return objects + [path for path in files if "aliquot" in Path(path).name or "/aliquot/" in path]
