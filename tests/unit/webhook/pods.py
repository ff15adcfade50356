"""Pods as the API server shows them to the webhook, and what it makes of them."""

import copy
from typing import Any

import jsonpatch
import msgspec

from aliquot.api.names import ResourceNames
from aliquot.dialects.hami import HamiDialect
from aliquot.kube.objects import Pod
from aliquot.webhook.mutate import Mutator

GPU, MEM, CORE = "aliquot.dev/gpu", "aliquot.dev/gpu-mem", "aliquot.dev/gpu-core"
HERE = Mutator(ResourceNames(), (HamiDialect(),))

Document = dict[str, Any]


def container(limits: Document | None = None, name: str = "main", **more: Any) -> Document:
    """One container; limits are its requests too, as after the API server's defaulting."""
    resources = {"resources": {"limits": limits, "requests": dict(limits)}} if limits else {}
    return {"name": name, "image": "x"} | resources | more


def pod(*containers: Document, annotations: Document | None = None, **spec: Any) -> Document:
    """A new pod."""
    metadata = {"name": "p", "namespace": "default"} | ({"annotations": annotations} if annotations else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers), "schedulerName": "default-scheduler"} | spec,
    }


def mutate(
    document: Document, mutator: Mutator = HERE, namespace: str = "default"
) -> tuple[Document, list[str]]:
    """The pod after admission, and the warnings."""
    mutation = mutator.mutate(copy.deepcopy(document), msgspec.convert(document, Pod), namespace)
    changed: Document = jsonpatch.apply_patch(document, list(mutation.operations))
    return changed, list(mutation.warnings)


def resources(document: Document, position: int = 0, kind: str = "containers") -> Document:
    """A container's resources, limits and requests being equal."""
    found = document["spec"][kind][position]["resources"]
    assert found["limits"] == found["requests"]
    return dict(found["limits"])
