"""The example manifests: ordinary Kubernetes YAML that our own reader understands."""

from pathlib import Path

import msgspec
import pytest
import yaml

from aliquot.crds.gpu_pool import GPUPool
from aliquot.dialects import load_dialects
from aliquot.kube.objects import Pod
from aliquot.request.pod_request import read_pod_request
from aliquot.request.resize import encode_status, read_asks
from aliquot.scheduler_ext.gang.pod_groups import terms_of
from aliquot.scheduler_ext.state.pods import PlacedPod

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PODS = [
    pytest.param(document, id=f"{path.parent.name}/{path.name}")
    for path in sorted(EXAMPLES.glob("*/*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document["kind"] == "Pod"
]


@pytest.mark.parametrize("manifest", PODS)
def test_a_pod_of_the_examples_asks_for_something(manifest: dict[str, object]) -> None:
    """Each is understood, with HAMi's dialect switched on, and asks for a slice or an instance."""
    request = read_pod_request(msgspec.convert(manifest, Pod), dialects=load_dialects(["hami"]))
    assert request.wants_slices or request.wants_mig


def test_the_resize_of_the_examples_makes_sense() -> None:
    """What it asks by annotation is read as its README says."""
    manifest = yaml.safe_load((EXAMPLES / "resize" / "resize.yaml").read_text())
    asks = read_asks(manifest["metadata"]["annotations"], ["main"])
    assert encode_status(asks) in (EXAMPLES / "README.md").read_text()


def test_the_burst_of_the_examples_is_what_its_pool_is_for() -> None:
    """The pool overcommits memory, and the notebook's may be overcommitted."""
    pool = msgspec.convert(yaml.safe_load((EXAMPLES / "burst" / "pool.yaml").read_text()), GPUPool)
    notebook = yaml.safe_load((EXAMPLES / "burst" / "notebook.yaml").read_text())
    (container,) = read_pod_request(msgspec.convert(notebook, Pod)).containers
    assert pool.spec.memory_percent > 100
    assert container.slice is not None
    assert container.slice.burst


def test_the_group_of_the_examples_is_whole() -> None:
    """As many workers as they say that they need, all of one group."""
    documents = yaml.safe_load_all((EXAMPLES / "gang" / "workers.yaml").read_text())
    pods = [msgspec.convert(document, PlacedPod) for document in documents]
    assert {str(pod.group) for pod in pods} == {"/train"}
    assert {terms_of(pod.metadata).members for pod in pods} == {len(pods)}


def test_the_program_of_the_examples_is_python() -> None:
    """The program inside the ConfigMap compiles."""
    manifest = yaml.safe_load((EXAMPLES / "inference" / "program.yaml").read_text())
    compile(manifest["data"]["inference.py"], "inference.py", "exec")


def test_every_example_is_described() -> None:
    """The README beside the examples names each pod's manifest."""
    text = (EXAMPLES / "README.md").read_text()
    pods = {p.name for p in EXAMPLES.glob("inference/*.yaml")} - {"program.yaml"}
    assert [name for name in sorted(pods) if f"`{name}`" not in text] == []
