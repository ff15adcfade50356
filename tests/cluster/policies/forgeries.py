"""Attempts to write what the scheduler alone writes into pods: placements, and devices past it."""

from typing import Any

from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.policies.attempts import (
    APPLY,
    BINDINGS,
    CDI,
    MERGE,
    OPERATIONS,
    PLACEMENTS,
    STRATEGIC,
    Attempt,
    annotated,
    creating,
    patching,
    pods,
)
from tests.cluster.policies.manifests import (
    LIBRARY,
    OPTED_OUT,
    PLACEMENT,
    SYSTEM,
    TEAM,
    binding,
    container,
    plain,
    plain_pod,
    pod,
)
from tests.cluster.trial import PREFIX

POINTER = "/metadata/annotations/aliquot.dev~1placement"
MINE = "mine-alone"

GRANTS = ("placement", "resize-status", "retry", "reclaim")
FORGED = {PLACEMENT: MINE}
ALONE = "is written by Aliquot's scheduler alone, not by "


def _editing(
    what: str, body: Any, media: str = MERGE, *, says: str = f"annotation {PLACEMENT} {ALONE}", **more: str
) -> Attempt:
    """Somebody edits what the scheduler wrote."""
    return patching(what, body, media, policy=PLACEMENTS, says=says, **more)


def replaced(value: str | None) -> list[Obj]:
    """A JSON Patch of the placement; None takes it away."""
    return (
        [{"op": "remove", "path": POINTER}]
        if value is None
        else [{"op": "replace", "path": POINTER, "value": value}]
    )


def _forgeries() -> list[Attempt]:
    made = [
        creating(f"creates a pod with {key}", PLACEMENTS, f"annotation aliquot.dev/{key} {ALONE}alice", one)
        for key in GRANTS
        for one in [pod("forged", annotations={f"aliquot.dev/{key}": MINE})]
    ]
    edited = [
        _editing(
            f"edits {key}",
            annotated({f"aliquot.dev/{key}": MINE}),
            says=f"annotation aliquot.dev/{key} {ALONE}alice",
        )
        for key in GRANTS
    ]
    return [
        *made,
        *edited,
        *_created_with_a_placement(),
        *_edited_placements(),
        *_placements_past_the_front_door(),
    ]


def forged_in(namespace: str) -> Obj:
    """A pod with a placement, in another namespace than the team's."""
    made = pod(f"{PREFIX}forged", annotations=FORGED)
    made["metadata"]["namespace"] = namespace
    return made


def _created_with_a_placement() -> list[Attempt]:
    generated = pod("", annotations=FORGED)
    generated["metadata"]["generateName"] = "forged-"
    says = f"annotation {PLACEMENT} {ALONE}"
    applied = {"fieldManager": "alice", "force": "true"}
    return [
        creating(
            "creates a pod with all four",
            PLACEMENTS,
            "aliquot.dev/placement, aliquot.dev/resize-status, aliquot.dev/retry, aliquot.dev/reclaim is",
            pod("forged", annotations={f"aliquot.dev/{key}": MINE for key in GRANTS}),
        ),
        creating(
            "creates a pod without a slice and with a placement",
            PLACEMENTS,
            says,
            plain_pod("forged", annotations=FORGED),
        ),
        creating(
            "creates a pod with an empty placement",
            PLACEMENTS,
            says,
            pod("forged", annotations={PLACEMENT: ""}),
        ),
        creating("creates a pod by a generated name", PLACEMENTS, f"pod {TEAM}/forged-", generated),
        creating(
            "creates a pod for a scheduler of their own",
            PLACEMENTS,
            says,
            plain_pod("forged", annotations=FORGED, schedulerName="mine"),
        ),
        creating(
            "creates a pod with labels that opt out elsewhere",
            PLACEMENTS,
            says,
            pod(
                "forged",
                annotations=FORGED,
                labels={"aliquot.dev/webhook": "ignore", "hami.io/webhook": "ignore"},
            ),
        ),
        creating(
            "creates a pod in kube-system",
            PLACEMENTS,
            f"pod kube-system/{PREFIX}forged: ",
            forged_in("kube-system"),
            "operator",
        ),
        creating(
            "creates a pod in Aliquot's namespace",
            PLACEMENTS,
            f"pod {SYSTEM}/{PREFIX}forged: ",
            forged_in(SYSTEM),
            "operator",
        ),
        creating(
            "creates a pod in a namespace that opts out",
            PLACEMENTS,
            f"pod {OPTED_OUT}/{PREFIX}forged: ",
            forged_in(OPTED_OUT),
            "operator",
        ),
        creating(
            "creates a pod from a template with a placement",
            PLACEMENTS,
            "not by system:serviceaccount:kube-system:replicaset-controller",
            pod("forged", annotations=FORGED),
            "replicaset-controller",
        ),
        creating(
            "creates a pod with a placement",
            PLACEMENTS,
            f"{ALONE}admin",
            pod("forged", annotations=FORGED),
            "admin",
        ),
        Attempt(
            "applies a new pod with a placement",
            PLACEMENTS,
            says,
            "alice",
            "PATCH",
            pods("forged"),
            pod("forged", annotations=FORGED),
            APPLY,
            applied,
        ),
    ]


def _edited_placements() -> list[Attempt]:
    return [
        _editing("replaces the placement by a JSON Patch", replaced(MINE), OPERATIONS),
        _editing("removes the placement by a JSON Patch", replaced(None), OPERATIONS),
        _editing("removes the placement by a merge patch", annotated({PLACEMENT: None})),
        _editing("removes all annotations", {"metadata": {"annotations": None}}),
        _editing("replaces the placement by a strategic patch", annotated(FORGED), STRATEGIC),
        _editing("replaces the placement by server-side apply", annotated(FORGED), APPLY),
        _editing("adds a placement to a pod that waits", annotated(FORGED, "waiting"), name="waiting"),
        _editing("adds a placement to a pod without slices", annotated(FORGED, "plain"), name="plain"),
        _editing("replaces the placement", annotated(FORGED), who="admin", says=f"{ALONE}admin"),
    ]


def _placements_past_the_front_door() -> list[Attempt]:
    """By subresources, and by accounts that have business with pods."""
    of_the_webhook = f"{ALONE}system:serviceaccount:{SYSTEM}:aliquot-webhook"
    of_the_agent = f"{ALONE}system:serviceaccount:{SYSTEM}:aliquot-agent"
    return [
        _editing("patches the status with a placement", annotated(FORGED), who="operator", part="status"),
        _editing(
            "patches the status by a JSON Patch", replaced(MINE), OPERATIONS, who="operator", part="status"
        ),
        _editing(
            "patches the status by a strategic patch",
            annotated(FORGED),
            STRATEGIC,
            who="operator",
            part="status",
        ),
        _editing(
            "applies a status with a placement", annotated(FORGED), APPLY, who="operator", part="status"
        ),
        _editing(
            "removes the placement through the status",
            replaced(None),
            OPERATIONS,
            who="operator",
            part="status",
        ),
        _editing(
            "approves a resize through the status",
            annotated({"aliquot.dev/resize-status": MINE}),
            who="operator",
            part="status",
            says=f"annotation aliquot.dev/resize-status {ALONE}operator",
        ),
        _editing(
            "places a pod of its own node",
            annotated(FORGED),
            STRATEGIC,
            who="kubelet-a",
            part="status",
            says=f"{ALONE}system:node:aliquot-trial-node-a",
        ),
        _editing("places a pod", annotated(FORGED), who="webhook", says=of_the_webhook),
        _editing(
            "places a pod through the status",
            annotated(FORGED),
            who="webhook",
            part="status",
            says=of_the_webhook,
        ),
        _editing("places a pod of its own node", annotated(FORGED), who="agent-a", says=of_the_agent),
        _editing(
            "places a pod of another node", annotated(FORGED), who="agent-b", part="status", says=of_the_agent
        ),
        _editing(
            "places a pod through the status",
            annotated(FORGED),
            who="kube-scheduler",
            part="status",
            says=f"{ALONE}system:kube-scheduler",
        ),
    ]


def _bound(what: str, annotations: Obj, says: str, who: str = "operator", name: str = "waiting") -> Attempt:
    body = binding(name, "aliquot-trial-node-a", **annotations)
    return Attempt(what, BINDINGS, says, who, "POST", pods(name, "binding"), body)


def _bindings() -> list[Attempt]:
    legacy = Attempt(
        "binds a pod with a placement by the old resource",
        BINDINGS,
        f"annotation {PLACEMENT} comes with a Binding of Aliquot's scheduler alone",
        "operator",
        "POST",
        f"/api/v1/namespaces/{TEAM}/bindings",
        binding("waiting", "aliquot-trial-node-a", **FORGED),
    )
    return [
        _bound(
            "binds a pod with a placement",
            FORGED,
            f"binding of pod {TEAM}/waiting: annotation {PLACEMENT} comes with",
        ),
        legacy,
        _bound(
            "switches limits off with a Binding",
            {"aliquot.dev/enforcement": "off"},
            "annotation aliquot.dev/enforcement comes with",
        ),
        _bound(
            "switches one container's limits off",
            {"main.aliquot.dev/enforcement": "off"},
            "annotation main.aliquot.dev/enforcement comes with",
        ),
        _bound(
            "brings a device with a Binding",
            {"cdi.k8s.io/mine": "nvidia.com/gpu=all"},
            "annotation cdi.k8s.io/mine comes with",
        ),
        _bound("places a pod", FORGED, "not with one of system:kube-scheduler", "kube-scheduler"),
        _bound("places a pod", FORGED, "not with one of admin", "admin"),
        _bound(
            "places a pod", FORGED, f"not with one of system:serviceaccount:{SYSTEM}:aliquot-agent", "agent-a"
        ),
    ]


DEVICES = {"cdi.k8s.io/mine": "nvidia.com/gpu=all"}
PAST_ALIQUOT = "annotation cdi.k8s.io/mine asks for devices past Aliquot"


def _devices() -> list[Attempt]:
    mig = container(limits={"aliquot.dev/mig-1g.10gb": "1"})
    hami = container(limits={"nvidia.com/gpucores": "10"}, env=[{"name": "LD_PRELOAD", "value": LIBRARY}])
    first = container("first")
    return [
        *(
            creating(f"creates a pod with {what} and a CDI annotation", CDI, PAST_ALIQUOT, one)
            for what, one in {
                "a slice": pod("bad", annotations=DEVICES),
                "a MIG instance": pod("bad", mig, annotations=DEVICES, schedulerName="default-scheduler"),
                "HAMi's slice": pod("bad", hami, annotations=DEVICES),
                "a slice in an init container": pod(
                    "bad", plain(), initContainers=[first], annotations=DEVICES
                ),
            }.items()
        ),
        patching("adds a CDI annotation", annotated(DEVICES), policy=CDI, says=PAST_ALIQUOT),
        patching(
            "adds a CDI annotation by server-side apply",
            annotated(DEVICES),
            APPLY,
            policy=CDI,
            says=PAST_ALIQUOT,
        ),
        patching(
            "adds a CDI annotation through the status",
            annotated(DEVICES),
            who="operator",
            part="status",
            policy=CDI,
            says=PAST_ALIQUOT,
        ),
        patching("adds a CDI annotation", annotated(DEVICES), who="webhook", policy=CDI, says=PAST_ALIQUOT),
    ]


FORGERIES = [*_forgeries(), *_bindings(), *_devices()]
