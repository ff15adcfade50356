"""A cluster with the chart's policies and accounts, a team that uses it, and everybody who might try something.

Who there is:

- `alice` may edit in namespace `aliquot-trial-team`, as most users may in theirs.
- `operator` may do everything to pods, Bindings, events and GPUNodes everywhere: an account that was given too much,
  so that nothing but a policy is in its way.
- `admin` is in `system:masters`, which RBAC never stops.
- `webhook`, `scheduler` and `agent-a`, `agent-b` are Aliquot's accounts with the chart's rights. An agent's token is
  bound to its pod, and so names its node; `agent` has a token of the same account that names none.
- `kubelet-a` is the kubelet of `aliquot-trial-node-a`; `replicaset-controller` and `kube-scheduler` are Kubernetes'.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.objects import Obj
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.access import Cluster
from tests.cluster.control_plane import ControlPlane
from tests.cluster.helm import HelmRelease, rendered
from tests.cluster.policies.attempts import MERGE, Attempt
from tests.cluster.policies.catalogue import CANARIES
from tests.cluster.policies.manifests import (
    OPTED_OUT,
    PLACEMENT,
    SYSTEM,
    TEAM,
    TRIAL,
    UID_OF_NODE_A,
    binding,
    event,
    gpu_node,
    plain_pod,
    pod,
)
from tests.cluster.trial import PREFIX

ROOT = Path(__file__).parents[3]
WEBHOOKS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
POLICIES = tuple(PLURALS)
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
TOO_MUCH = f"{PREFIX}too-much"
SAID = ("ResizeNotApplied", "Lie")
"""Reasons of the events of these tests."""
EDITED_PODS = ["pods", "pods/status", "pods/ephemeralcontainers", "pods/resize", "pods/binding", "bindings"]
SYSTEM_ACCOUNT = "system:serviceaccount:kube-system:"


ADMIN, ALICE, OPERATOR = (f"{who}@aliquot.test" for who in ("admin", "alice", "operator"))
"""Users by names that nobody has, for they may also be given rights on a cluster that somebody has."""


def render(*kinds: str, **values: Any) -> list[Obj]:
    """The chart's objects of these kinds, as Helm renders them with these values."""
    return [obj for obj in rendered(values) if obj["kind"] in kinds]


class World:
    """The cluster and a client for each of those who use it."""

    def __init__(self, cluster: Cluster, dialects: Sequence[str] = ("hami",)) -> None:
        self.cluster, self.dialects = cluster, list(dialects)
        self.admin = cluster.kubectl
        self._clients = {"admin": Kubectl(cluster.user(ADMIN, "system:masters"))}
        for namespace in (SYSTEM, TEAM, "kube-system"):
            cluster.namespace(namespace)
        cluster.namespace(OPTED_OUT, {"aliquot.dev/policies": "ignore", "admission": "disabled"})
        HelmRelease(cluster).install_idle(dialects=self.dialects)
        self.admin.delete(WEBHOOKS, "aliquot", "")  # nobody answers there: tests of it bring their own
        self._make_people()
        self._make_nodes()
        self._make_pods()
        for policy in CANARIES:
            self._await(policy, refused=True)

    @property
    def plane(self) -> ControlPlane:
        """The cluster, where it is the tests' own."""
        assert isinstance(self.cluster, ControlPlane)
        return self.cluster

    def client(self, who: str) -> Kubectl:
        """A client that calls as this one."""
        return self._clients[who]

    def try_it(self, attempt: Attempt, *, dry_run: bool = False) -> Obj:
        """Do what somebody attempts; ApiError when it is refused."""
        query = {**attempt.query, **({"dryRun": "All"} if dry_run else {})}
        body = json.loads(json.dumps(attempt.body).replace(UID_OF_NODE_A, self._node_uid))
        if attempt.method == "DELETE" and dry_run:
            body = {**(body or {}), "dryRun": ["All"]}  # options in a body replace those in the query
        client = self.client(attempt.who)
        return client.request(attempt.method, attempt.path, body, query, attempt.media)

    def refusal(self, attempt: Attempt, *, dry_run: bool = False) -> ApiError | None:
        """How it is refused; None where it is not."""
        try:
            self.try_it(attempt, dry_run=dry_run)
        except ApiError as error:
            return error
        return None

    def state(self) -> dict[str, Obj]:
        """Everything that somebody might have written, by UID; not what controllers write of their own accord."""
        pods = [obj for place in (SYSTEM, TEAM, OPTED_OUT) for obj in self.admin.list("pods", place)]
        pods += [
            obj
            for obj in self.admin.list("pods", "kube-system")
            if obj["metadata"]["name"].startswith(PREFIX)
        ]
        events = [obj for obj in self.admin.list("events", TEAM) if obj["reason"] in SAID]
        nodes = self.admin.list("gpunodes.aliquot.dev")
        written = [*(_as_written(obj) for obj in pods if not _made_by_a_workload(obj)), *events, *nodes]
        return {obj["metadata"]["uid"]: obj for obj in written}

    # ---- policies ----

    def apply_policies(self, **values: Any) -> None:
        """Bring in the chart's policies, rendered with these values, in place of those that are there."""
        for obj in render(*POLICIES, **{"dialects": self.dialects, **values}):
            name, path = obj["metadata"]["name"], f"{ADMISSION}/{PLURALS[obj['kind']]}"
            stored = self.admin.find(f"{PLURALS[obj['kind']]}.admissionregistration.k8s.io", name, "")
            if stored is None:
                self.admin.request("POST", path, obj)
            else:
                obj["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
                self.admin.request("PUT", f"{path}/{name}", obj)

    @contextlib.contextmanager
    def without(self, policy: str) -> Iterator[None]:
        """As if one policy were not there."""
        stored = self.admin.get(BINDINGS, policy, "")
        self.admin.delete(BINDINGS, policy, "")
        try:
            self._await(policy, refused=False)
            yield
        finally:
            stored["metadata"] = {"name": policy}
            self.admin.create(stored)
            self._await(policy, refused=True)

    @contextlib.contextmanager
    def without_policies(self) -> Iterator[None]:
        """As if there were none."""
        with contextlib.ExitStack() as stack:
            for policy in CANARIES:
                stack.enter_context(self.without(policy))
            yield

    def _await(self, policy: str, *, refused: bool) -> None:
        """The API server notices a change of its policies within a second or so."""
        state = "in force" if refused else "out of force"

        def is_so() -> bool:
            refusal = self.refusal(CANARIES[policy], dry_run=True)
            return f"ValidatingAdmissionPolicy '{policy}'" in str(refusal) if refused else refusal is None

        wait_for(f"{policy} to be {state}", is_so, 120)

    # ---- who and what there is ----

    def _make_people(self) -> None:
        self._grant(ALICE, "system:aggregate-to-edit", TEAM)
        everything = [
            {"apiGroups": [""], "resources": [*EDITED_PODS, "events", "pods/eviction"], "verbs": ["*"]},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["*"]},
            {"apiGroups": ["aliquot.dev"], "resources": ["gpunodes", "gpunodes/status"], "verbs": ["*"]},
        ]
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
        self.admin.apply({**rbac, "metadata": {"name": TOO_MUCH}, "rules": everything})
        self._grant(OPERATOR, TOO_MUCH)
        for name in ("webhook", "scheduler"):
            self._clients[name] = Kubectl(self.cluster.service_account(SYSTEM, f"aliquot-{name}"))
        for name in ("webhook", "agent"):
            self._grant(f"system:serviceaccount:{SYSTEM}:aliquot-{name}", TOO_MUCH)
        for name, user in {"alice": ALICE, "operator": OPERATOR}.items():
            self._clients[name] = Kubectl(self.cluster.user(user))
        self._clients["kubelet-a"] = Kubectl(
            self.cluster.user("system:node:aliquot-trial-node-a", "system:nodes")
        )
        self._clients["kube-scheduler"] = Kubectl(self.cluster.user("system:kube-scheduler"))
        controller = f"{SYSTEM_ACCOUNT}replicaset-controller"
        self._clients["replicaset-controller"] = Kubectl(self.cluster.user(controller))

    def _grant(self, user: str, role: str, namespace: str = "") -> None:
        name = f"{PREFIX}{user}-{role}".replace(":", "-")
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        self.admin.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
                "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
                "roleRef": reference,
                "subjects": [{"kind": "User", "apiGroup": reference["apiGroup"], "name": user}],
            }
        )

    def _make_nodes(self) -> None:
        self._clients["agent"] = Kubectl(self.cluster.service_account(SYSTEM, "aliquot-agent"))
        for letter in "ab":
            node, agent = f"aliquot-trial-node-{letter}", f"agent-{letter}"
            self.admin.create(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": node, "labels": {TRIAL: "node"}},
                    "spec": {"taints": [{"key": TRIAL, "effect": "NoSchedule"}]},
                }
            )
            room = {"status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "20"}}}
            self.admin.request("PATCH", f"/api/v1/nodes/{node}/status", room, media_type=MERGE)
            self._clients[agent] = Kubectl(self.agent_on(node, agent))
            self.admin.create(gpu_node(node))
        self._node_uid = self.admin.get("nodes", "aliquot-trial-node-a", "")["metadata"]["uid"]

    def agent_on(self, node: str, pod_name: str) -> Path:
        """The kubeconfig of a node's agent, whose token is its pod's."""
        made = plain_pod(pod_name, serviceAccountName="aliquot-agent", nodeName=node)
        made["metadata"]["namespace"] = SYSTEM
        self.admin.create(made)
        return self.cluster.service_account(SYSTEM, "aliquot-agent", pod=pod_name)

    def _make_pods(self) -> None:
        """`running` has a slice and is placed on aliquot-trial-node-a, `waiting` has one and is not; `plain` has none.

        Of `running` the agent of aliquot-trial-node-a has said something: the event `said`.
        """
        for made in (pod("running"), pod("waiting"), plain_pod("plain", nodeName="aliquot-trial-node-a")):
            made["metadata"]["namespace"] = TEAM
            self.admin.create(made)
        self.admin.create({**event("aliquot-trial-node-a"), "metadata": {"name": "said", "namespace": TEAM}})
        path = f"/api/v1/namespaces/{TEAM}/pods/running/binding"
        self.client("scheduler").request(
            "POST", path, binding("running", "aliquot-trial-node-a", **{PLACEMENT: "placed"})
        )


def _as_written(pod: Obj) -> Obj:
    """Without what the API server and controllers note about it."""
    metadata = {
        key: pod["metadata"][key] for key in pod["metadata"].keys() - {"managedFields", "resourceVersion"}
    }
    return {"metadata": metadata, "spec": pod["spec"]}


def _made_by_a_workload(pod: Obj) -> bool:
    return any(owner["kind"] == "ReplicaSet" for owner in pod["metadata"].get("ownerReferences", ()))
