"""The volume that the webhook adds for the usage page of each container with a slice or a MIG instance."""

import pytest

from aliquot.api.names import USAGE_VOLUME_SIZE
from aliquot.libshim._pages import lib
from aliquot.webhook.refusal import Refusal
from tests.unit.webhook.pods import MEM, Document, container, mutate, pod

SLICE = {MEM: "1Gi"}
PAGE = "/run/aliquot/usage"
OURS: Document = {"emptyDir": {"medium": "Memory", "sizeLimit": "128Ki"}}


def volume(name: str, source: Document = OURS) -> Document:
    """A volume of a pod."""
    return {"name": name} | source


def page(name: str) -> Document:
    """How a container mounts its usage page."""
    return {"name": name, "mountPath": PAGE, "subPath": "usage"}


def test_each_container_with_a_slice_has_a_volume_of_its_own():
    """Init containers included; the others have none."""
    document = pod(container(SLICE), container(name="log"), initContainers=[container(SLICE, name="warm")])
    changed, warnings = mutate(document)
    spec = changed["spec"]
    assert spec["volumes"] == [volume("aliquot-usage-0"), volume("aliquot-usage-1")]
    assert spec["initContainers"][0]["volumeMounts"] == [page("aliquot-usage-0")]
    assert spec["containers"][0]["volumeMounts"] == [page("aliquot-usage-1")]
    assert "volumeMounts" not in spec["containers"][1]
    assert mutate(changed) == (changed, warnings)


def test_a_container_that_comes_later_gets_another_number():
    """As one that another webhook puts first after this one was asked."""
    first, _ = mutate(pod(container(SLICE)))
    first["spec"]["containers"].insert(0, container(SLICE, name="proxy"))
    proxy, main = mutate(first)[0]["spec"]["containers"]
    assert (proxy["volumeMounts"], main["volumeMounts"]) == (
        [page("aliquot-usage-1")],
        [page("aliquot-usage-0")],
    )


def test_a_pod_with_mig_instances_alone_gets_nothing_else():
    """Whole instances need no interceptor, but their pages can be made to grow as well."""
    document = pod(container({"aliquot.dev/mig-1g.18gb": "1"}), container(name="log"))
    changed, warnings = mutate(document)
    document["spec"]["containers"][0]["volumeMounts"] = [page("aliquot-usage-0")]
    document["spec"]["volumes"] = [volume("aliquot-usage-0")]
    assert (changed, warnings) == (document, [])


def test_the_pods_own_volumes_stay():
    """Ours are added behind them."""
    data, where = volume("data", {"emptyDir": {}}), {"name": "data", "mountPath": "/data"}
    spec = mutate(pod(container(SLICE, volumeMounts=[where]), volumes=[data]))[0]["spec"]
    assert spec["volumes"] == [data, volume("aliquot-usage-0")]
    assert spec["containers"][0]["volumeMounts"] == [where, page("aliquot-usage-0")]


VOLUMES: dict[str, Document] = {
    "larger": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    "on a disk": {"emptyDir": {}},
    "a directory of the host": {"hostPath": {"path": "/data"}},
}


@pytest.mark.parametrize("source", VOLUMES.values(), ids=VOLUMES.keys())
def test_such_names_are_for_these_volumes_alone(source: Document):
    """The page would be where it fills something else."""
    document = pod(
        container(SLICE, volumeMounts=[page("aliquot-usage-0")]), volumes=[volume("aliquot-usage-0", source)]
    )
    with pytest.raises(
        Refusal, match="volume 'aliquot-usage-0': names that begin with aliquot-usage- are for"
    ):
        mutate(document)


USAGE, OTHER = volume("aliquot-usage-0"), volume("other", {"emptyDir": {}})
MOUNTS: dict[str, tuple[Document, Document]] = {
    "the whole volume elsewhere": (USAGE, {"name": "aliquot-usage-0", "mountPath": "/data"}),
    "the whole volume in the page's place": (USAGE, {"name": "aliquot-usage-0", "mountPath": PAGE}),
    "a page that cannot be written": (USAGE, page("aliquot-usage-0") | {"readOnly": True}),
    "another volume": (OTHER, {"name": "other", "mountPath": PAGE}),
    "another volume, written otherwise": (OTHER, {"name": "other", "mountPath": "/run//aliquot/usage/"}),
    "another volume below": (OTHER, {"name": "other", "mountPath": f"{PAGE}/x"}),
}


@pytest.mark.parametrize(("brought", "mount"), MOUNTS.values(), ids=MOUNTS.keys())
def test_a_page_is_reached_as_a_page_alone(brought: Document, mount: Document):
    """Who has the directory that it is in can put something else in its place."""
    with pytest.raises(Refusal, match=f"container 'main': volume '{mount['name']}' is mounted at "):
        mutate(pod(container(SLICE, volumeMounts=[mount]), container(name="log"), volumes=[brought]))


def test_containers_without_a_slice_reach_no_page():
    """Not even one that is left over."""
    log = container(name="log", volumeMounts=[{"name": "aliquot-usage-0", "mountPath": "/data"}])
    with pytest.raises(Refusal, match="container 'log': volume 'aliquot-usage-0' is mounted at /data"):
        mutate(pod(container(SLICE), log, volumes=[USAGE]))


def test_two_containers_have_no_page_together():
    """Each has limits of its own."""
    containers = (container(SLICE, name=name, volumeMounts=[page("aliquot-usage-0")]) for name in ("a", "b"))
    with pytest.raises(
        Refusal, match="container 'b': volume 'aliquot-usage-0' is mounted at /run/aliquot/usage"
    ):
        mutate(pod(*containers, volumes=[USAGE]))


@pytest.mark.parametrize("granule", [4096, 16384, 65536])
def test_a_page_fits(granule: int):
    """The kubelet evicts a pod whose volume takes more than was said, by whole pages of memory."""
    size = int(USAGE_VOLUME_SIZE.removesuffix("Ki")) << 10
    assert -(-lib.AQ_USAGE_FILE_SIZE // granule) * granule <= size
