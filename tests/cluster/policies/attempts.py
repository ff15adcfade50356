"""What somebody might try, as one request: who, what, and what the policy that stops it says."""

from dataclasses import dataclass, field
from typing import Any

from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.policies.manifests import TEAM

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
OPERATIONS = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

PLACEMENTS, BINDINGS, CDI, SLICES = (
    f"aliquot-{name}" for name in ("placements", "bindings", "cdi", "slices")
)
AGENTS, EVENTS = "aliquot-agents", "aliquot-agent-events"


@dataclass(frozen=True)
class Attempt:
    """One request of somebody's."""

    what: str
    policy: str
    says: str
    who: str
    method: str
    path: str
    body: Any
    media: str = JSON
    query: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """A name for pytest."""
        return f"{self.policy.removeprefix('aliquot-') or 'legal'}: {self.who} {self.what}"

    @property
    def dialect(self) -> bool:
        """Whether its pod asks for a slice in a dialect's words."""
        containers = (
            self.body["spec"].get("containers", []) if self.method == "POST" and "spec" in self.body else []
        )
        limits = (name for one in containers for name in one["resources"]["limits"])
        return any(name.startswith("nvidia.com/") for name in limits)


def pods(name: str = "", subresource: str = "", namespace: str = TEAM) -> str:
    """The path of pods, of a pod, or of a part of one."""
    parts = [f"/api/v1/namespaces/{namespace}/pods", name, subresource]
    return "/".join(filter(None, parts))


def creating(what: str, policy: str, says: str, made: Obj, who: str = "alice") -> Attempt:
    """Somebody makes a pod, in the team's namespace unless it names another."""
    namespace = made["metadata"].get("namespace", TEAM)
    return Attempt(what, policy, says, who, "POST", pods(namespace=namespace), made)


def annotated(annotations: Obj, name: str = "running") -> Obj:
    """A patch of annotations."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}}


def patching(
    what: str,
    body: Any,
    media: str = MERGE,
    *,
    who: str = "alice",
    name: str = "running",
    part: str = "",
    policy: str,
    says: str,
) -> Attempt:
    """Somebody patches a pod."""
    query = {"fieldManager": "somebody", "force": "true"} if media == APPLY else {}
    return Attempt(what, policy, says, who, "PATCH", pods(name, part), body, media, query)
