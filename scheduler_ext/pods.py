"""A pod as the extender follows it.

Pods are read into a struct of the few fields the ledger needs, which keeps the copy of a large cluster small
and leaves nothing to stumble over in the rest of a pod. Of its containers nothing is kept but what they take together
of the node's CPU and memory.
"""

import msgspec

from aliquot.host import NO_HOST, HostShare, host_share
from aliquot.kube.objects import KubeObject, KubeStruct, ResourceRequirements


class _Container(KubeStruct, frozen=True, kw_only=True):
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""


class _Bound(KubeStruct, frozen=True, kw_only=True):
    """Where the pod is, and what it takes there; the containers are emptied as soon as they are added up."""

    node_name: str = ""
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    host: HostShare = NO_HOST

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "host", host_share(self))
        msgspec.structs.force_setattr(self, "containers", ())
        msgspec.structs.force_setattr(self, "init_containers", ())


class _Phase(KubeStruct, frozen=True, kw_only=True):
    phase: str = ""


class PlacedPod(KubeObject, frozen=True, kw_only=True):
    """A pod as far as the ledger is concerned."""

    spec: _Bound = _Bound()
    status: _Phase = _Phase()

    @property
    def finished(self) -> bool:
        """Whether it holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")
