"""What the chart lets its pods do: nothing that they need not."""

import re
from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from aliquot.api.names import GRANTS
from tests.deploy.charts import CASES, NAMESPACE, ROOT, Json, case, containers, objects, one, workloads

GOLDEN = ROOT / "tests/deploy/golden/rbac.yaml"
RBAC = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
KEY_FILE = "--tls-private-key-file=/etc/aliquot/tls/tls.key"
"""kube-scheduler's flag, which says where the key is."""
every_case = pytest.mark.parametrize("name", CASES)


def control(found: Iterable[Json]) -> list[Json]:
    """The workloads that Pod Security's level `restricted` must accept: all but the agent."""
    return [each for each in workloads(list(found)) if each["metadata"]["name"] != "aliquot-agent"]


@every_case
def test_the_control_plane_is_restricted(name: str):
    """Pod Security Standards, level restricted, v1.37: what a pod may not have, and what it must say."""
    for workload in control(case(name)):
        spec = workload["spec"]["template"]["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert {next(iter(each.keys() - {"name"})) for each in spec["volumes"]} <= {
            "secret",
            "configMap",
            "emptyDir",
            "projected",
        }
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for _, container in containers([workload]):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert not {"privileged", "procMount", "runAsUser", "seccompProfile"} & context.keys()
            assert all("hostPort" not in port for port in container.get("ports", ()))


def test_webhook_and_policies_guard_the_same_annotations():
    """Those that `aliquot.api.names` lists, at creation and at each edit; a new one is in all three or in none."""
    literal = re.compile(r"\[('aliquot\.dev/placement'[^\]]*|\"aliquot\.dev/placement\"[^\]]*)\]")
    found = case("defaults")
    policy = one(found, "ValidatingAdmissionPolicy", "aliquot-placements")["spec"]
    configuration = one(found, "MutatingWebhookConfiguration", "aliquot")
    conditions = {
        "policy, when": policy["matchConditions"][-1]["expression"],
        "policy, which": policy["variables"][0]["expression"],
        **{each["name"]: each["matchConditions"][0]["expression"] for each in configuration["webhooks"]},
    }
    for where, text in conditions.items():
        lists = [tuple(re.findall(r"aliquot\.dev/[\w-]+", each)) for each in literal.findall(text)]
        assert lists == [GRANTS], where


def test_the_agent_is_root_and_little_more():
    """Root, because the directories of the host are root's; two capabilities, and only those to write."""
    spec = one(case("defaults"), "DaemonSet", "aliquot-agent")["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    (agent,) = spec["containers"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    context = agent["securityContext"]
    assert not {"seccompProfile", "appArmorProfile"} & context.keys()
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE", "SYS_NICE"]}
    assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
    assert "privileged" not in context
    writable = {each["mountPath"] for each in agent["volumeMounts"] if not each.get("readOnly")}
    assert writable == {
        "/var/lib/aliquot",
        "/run/aliquot",
        "/var/run/cdi",
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet/pods",
        "/tmp",  # noqa: S108 - the container's own
    }


@every_case
def test_only_who_asks_the_api_server_has_a_token(name: str):
    """Each pod has an account of its own, with rights, and says itself that it wants the token."""
    found = case(name)
    bound = {
        (subject["namespace"], subject["name"])
        for each in found
        if each["kind"].endswith("Binding") and "subjects" in each
        for subject in each["subjects"]
    }
    for each in workloads(found):
        spec = each["spec"]["template"]["spec"]
        account = (each["metadata"]["namespace"], spec["serviceAccountName"])
        assert spec["serviceAccountName"] == each["metadata"]["name"]
        removes = name == "about to go" and account[1] == "aliquot-agent"
        assert spec["automountServiceAccountToken"] is not removes
        assert account in bound
        assert one(found, "ServiceAccount", account[1])["automountServiceAccountToken"] is False


def rights(found: Iterable[Json]) -> dict[str, Json]:
    """All RBAC objects, without labels."""
    kept: dict[str, Json] = {}
    for each in found:
        if each["kind"] in RBAC:
            place = each["metadata"].get("namespace")
            key = "/".join(part for part in (each["kind"], place, each["metadata"]["name"]) if part)
            kept[key] = {part: each[part] for part in ("rules", "roleRef", "subjects") if part in each}
    return kept


def test_rights_are_those_that_were_looked_at():
    """Every right is in a file that a person reads in the review of a change; nothing is said of all verbs or objects.

    Write it anew with `python -m tests.deploy.test_chart_security`.
    """
    found = rights(case("everything on"))
    assert found == yaml.safe_load(GOLDEN.read_text())
    for name, granted in found.items():
        for rule in granted.get("rules", ()):
            assert "*" not in {word for words in rule.values() for word in words}, name


def evicts(found: dict[str, Json]) -> bool:
    """Whether the extender may evict."""
    return any(
        "pods/eviction" in rule["resources"] for rule in found["ClusterRole/aliquot-scheduler"]["rules"]
    )


def test_rights_go_with_what_they_are_for():
    """No evictions where nothing of the extender evicts, no quotas for a webhook that follows none."""
    little = rights(case("as little as works"))
    assert not evicts(little)
    off = {"reclaimsPerMinute": 0, "preemption": "none", "groupGraceSeconds": 0}
    for needs in off:
        least = {key: value for key, value in off.items() if key != needs}
        assert evicts(rights(objects({"scheduler": {"extender": least}}))), f"{needs} needs it yet"
    groups = {group for rule in little["ClusterRole/aliquot-webhook"]["rules"] for group in rule["apiGroups"]}
    assert "aliquot.dev" not in groups
    assert "ClusterRoleBinding/aliquot-metrics" not in little
    existing = rights(case("a scheduler that is there"))
    assert "ClusterRoleBinding/aliquot-kube-scheduler" not in existing
    assert "ClusterRole/aliquot-certs" not in rights(case("cert-manager"))


@every_case
def test_no_secret_is_in_a_config_map_or_a_flag(name: str):
    """Keys come from Secrets, which the chart leaves empty: an upgrade must not overwrite what was put into them."""
    found = case(name)
    for each in found:
        assert each["kind"] != "Secret" or not {"data", "stringData"} & each.keys()
        if each["kind"] == "ConfigMap":
            assert "PRIVATE KEY" not in yaml.safe_dump(each)
    for _, container in containers(found):
        assert not any(
            word in text.lower()
            for text in container.get("args", ())
            if text != KEY_FILE
            for word in ("password", "token=", "private")
        )


def test_nobody_reaches_a_pod_by_a_port_that_is_not_listed():
    """Each of our pods is selected by a policy that denies, and by one that allows what it has ports for."""
    found = case("defaults")
    policies = [each for each in found if each["kind"] == "NetworkPolicy"]
    deny = one(found, "NetworkPolicy", "aliquot")["spec"]
    assert deny["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & deny.keys()
    for workload in workloads(found):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert deny["podSelector"]["matchLabels"].items() <= labels.items()
        allowed: set[Any] = {
            port["port"]
            for each in policies
            if each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
            for rule in each["spec"].get("ingress", ())
            for port in rule["ports"]
        }
        ports = {
            port["name"] for _, container in containers([workload]) for port in container.get("ports", ())
        }
        assert allowed == ports


def test_the_monitorings_namespace_can_be_named():
    """Then no other reads metrics."""
    policy = one(case("everything on"), "NetworkPolicy", "aliquot-agent")
    (rule,) = policy["spec"]["ingress"]
    assert rule["from"][0]["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "monitoring"
    }
    (to_server, _) = policy["spec"]["egress"]
    assert to_server["to"] == [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
    assert {
        each["metadata"]["namespace"] for each in case("defaults") if each["kind"] == "NetworkPolicy"
    } == {NAMESPACE}


if __name__ == "__main__":
    GOLDEN.write_text(
        "# What each account of the chart may do, all options on; tests/deploy/test_chart_security.py compares it.\n"
        + yaml.safe_dump(rights(case("everything on")), sort_keys=True)
    )
