"""A pod as the extender follows it.

Pods are read into a struct of the few fields the ledger needs, which keeps the copy of a large cluster small
and leaves nothing to stumble over in the rest of a pod.
"""

from aliquot.kube.objects import KubeObject, KubeStruct


class _Bound(KubeStruct, frozen=True, kw_only=True):
    node_name: str = ""


class _Phase(KubeStruct, frozen=True, kw_only=True):
    phase: str = ""


class PlacedPod(KubeObject, frozen=True, kw_only=True):
    """A pod as far as the ledger is concerned."""

    spec: _Bound = _Bound()
    status: _Phase = _Phase()
