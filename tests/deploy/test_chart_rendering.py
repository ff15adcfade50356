"""What the chart renders to: whole, valid for every Kubernetes it is for, and the same from a package."""

import json
from functools import cache
from pathlib import Path

import helm_python
import pytest
import yaml

from aliquot.crds.resources import GPU_NODES, GPU_POOLS, GPU_QUOTAS
from tests.deploy.charts import (
    CASES,
    CHART,
    KUBERNETES,
    NAMESPACE,
    ROOT,
    Json,
    case,
    containers,
    files,
    objects,
    one,
    workloads,
)

FOREIGN = {"Issuer", "Certificate", "ServiceMonitor", "PrometheusRule"}
"""Kinds of other projects, of which Kubernetes has no schema."""
CLUSTER_WIDE = {
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}

every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_helm_lints_it(name: str):
    """As strictly as it can; an icon is all that it misses."""
    report = (
        helm_python.lint(CHART, CASES[name], strict=True, kube_version=KUBERNETES) if _offline(name) else {}
    )
    assert [one["error"] for one in report.get("messages", [])] in ([], ["icon is recommended"])
    assert not report.get("errors")


def _offline(name: str) -> bool:
    """Whether a case needs nothing of other projects; `helm lint` cannot be told of them."""
    values = CASES[name]
    return values.get("certificates", {}).get("mode") != "cert-manager" and "monitoring" not in values


@every_case
@pytest.mark.parametrize("version", [pytest.param(KUBERNETES, marks=pytest.mark.slow), "latest"])
def test_kubernetes_knows_every_field(name: str, version: str):
    """Of the oldest Kubernetes that the chart is for, and of the latest: a misspelt field would be dropped."""
    for found in case(name):
        if found["kind"] not in FOREIGN:
            _validate(json.dumps(found), version)


@cache
def _validate(text: str, version: str) -> None:
    """Many objects are the same in many cases. The import takes seconds, which no other worker should wait for."""
    import kubernetes_validate

    known = kubernetes_validate.latest_version() if version == "latest" else version
    kubernetes_validate.validate(json.loads(text), known, strict=True)


@every_case
def test_each_object_is_there_once_in_its_place_and_is_known_as_ours(name: str):
    """What Helm cannot tell apart it would overwrite."""
    found = case(name)
    keys = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in found]
    assert len(keys) == len(set(keys))
    for each in found:
        place = each["metadata"].get("namespace")
        assert (place is None) == (each["kind"] in CLUSTER_WIDE), each["metadata"]["name"]
        assert place in {None, NAMESPACE, "kube-system"}
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "aliquot", each["metadata"]["name"]


@every_case
def test_pods_are_found_by_what_selects_them(name: str):
    """Services, budgets and workloads by labels that no upgrade changes; ports by a name that a container has."""
    found = case(name)
    pods = [(each["metadata"]["namespace"], each["spec"]["template"]) for each in workloads(found)]
    for each in found:
        if each["kind"] not in {"Service", "Deployment", "DaemonSet", "PodDisruptionBudget"}:
            continue
        selector = each["spec"]["selector"].get("matchLabels", each["spec"]["selector"])
        assert not {"app.kubernetes.io/version", "helm.sh/chart"} & selector.keys()
        (pod,) = [
            template
            for place, template in pods
            if place == each["metadata"]["namespace"]
            and selector.items() <= template["metadata"]["labels"].items()
        ]
        if each["kind"] == "Service":
            every = (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
            named = {port["name"] for one in every for port in one.get("ports", ())}
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= named or name == "about to go"


def test_a_package_renders_as_the_folder_does(tmp_path: Path):
    """A link out of the chart would be lost on the way."""
    archive = Path(helm_python.package(CHART, destination=tmp_path))
    values = CASES["everything on"]
    assert files(values, chart=archive) == files(values)


def test_the_crds_are_those_of_the_folder():
    """Word for word, but for Helm's labels and the wish to keep them; and as many as there are."""
    rendered = {
        each["metadata"]["name"]: each for each in case("defaults") if each["kind"].startswith("Custom")
    }
    plain = [yaml.safe_load(path.read_text()) for path in (ROOT / "deploy/crds").glob("*.yaml")]
    assert {f"{one.plural}.{one.group}" for one in (GPU_NODES, GPU_POOLS, GPU_QUOTAS)} == set(rendered)
    assert len(plain) == len(rendered)
    for each in plain:
        found = rendered[each["metadata"]["name"]]
        assert found["spec"] == each["spec"]
        assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not any(each["kind"].startswith("Custom") for each in case("as little as works"))


def test_the_chart_has_the_packages_version():
    """Images are tagged with it."""
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{metadata["version"]}"' in project
    assert metadata["appVersion"] == metadata["version"]


def test_images_come_from_where_the_values_say():
    """Registry before the name, tag behind it, a digest instead of both."""

    def images(name: str) -> set[str]:
        return {container["image"] for _, container in containers(case(name))}

    assert images("defaults") == {
        "registry.example.com/gpu/aliquot/agent:0.1.0",
        "registry.example.com/gpu/aliquot/control:0.1.0",
        "registry.k8s.io/kube-scheduler:v1.30.0",
    }
    mirror, digest = "registry.example.com/mirror", f"@sha256:{'0' * 64}"
    assert images("everything on") == {
        f"{mirror}/aliquot/agent{digest}",
        f"{mirror}/aliquot/control{digest}",
        f"{mirror}/aliquot/control:1.2.3",
        f"registry.k8s.io/kube-scheduler{digest}",
    }


@pytest.mark.parametrize(
    ("cluster", "tag"),
    [
        ("v1.31.4-gke.1372000", "v1.31.4"),
        ("v1.32.1+k3s1", "v1.32.1"),
        ("v1.30", "v1.30.0"),
        ("v1.37.2", "v1.37.2"),
    ],
)
def test_the_second_scheduler_is_of_the_clusters_version(cluster: str, tag: str):
    """Kubernetes' own, of whoever's cluster; `helm template --kube-version` may leave out the last number."""
    pod = one(objects({}, kubernetes=cluster), "Deployment", "aliquot-scheduler")["spec"]["template"]["spec"]
    images = {each["name"]: each["image"] for each in pod["containers"]}
    assert images["kube-scheduler"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_the_webhook_sees_a_dialects_pods_only_where_it_is_on():
    """They would depend on it for nothing."""
    plain = yaml.safe_load((ROOT / "deploy/webhook/configuration.yaml").read_text())["webhooks"]

    def shown(name: str) -> dict[str, list[Json]]:
        configuration = one(case(name), "MutatingWebhookConfiguration", "aliquot")
        return {each["name"]: each["matchConditions"] for each in configuration["webhooks"]}

    everything = {each["name"]: each["matchConditions"] for each in plain}
    assert shown("hami") == everything
    assert shown("defaults") == {key: value for key, value in everything.items() if key != "hami.aliquot.dev"}


def test_a_dialect_may_be_for_some_namespaces_alone():
    """Elsewhere its pods are the other project's: no webhook changes them, and no policy judges them."""
    found = case("beside hami")
    webhooks = one(found, "MutatingWebhookConfiguration", "aliquot")["webhooks"]
    selected = {each["name"]: each.get("namespaceSelector") for each in webhooks}
    assert selected.pop("hami.aliquot.dev") == {"matchLabels": {"hami.io/webhook": "ignore"}}
    assert set(selected.values()) == {None}
    for name in ("aliquot-slices", "aliquot-cdi"):
        assert "nvidia.com/gpu" in str(one(case("hami"), "ValidatingAdmissionPolicy", name))
        assert "nvidia.com/gpu" not in str(one(found, "ValidatingAdmissionPolicy", name))


def test_scheduler_webhook_and_extender_speak_the_same_dialects():
    """One that is left out would place pods without cards, or none at all."""
    for name, spoken in (("defaults", []), ("hami", ["hami"]), ("a scheduler that is there", ["hami"])):
        found = case(name)
        for workload, container in (("aliquot-webhook", "webhook"), ("aliquot-scheduler", "extender")):
            own = one(found, "Deployment", workload)
            (args,) = [each["args"] for _, each in containers([own]) if each["name"] == container]
            assert args[args.index("--dialects") + 1 :][:1] == spoken if spoken else "--dialects" not in args
        text = "".join(one(found, "ConfigMap", "aliquot-scheduler")["data"].values())
        assert ("nvidia.com/gpumem" in text) == bool(spoken)


def test_certificates_by_cert_manager_name_whom_they_are_for():
    """Callers know a service by its Service's name; the extender knows who calls by the common name."""
    found = case("cert-manager")
    for name in ("agent", "scheduler", "webhook"):
        spec = one(found, "Certificate", f"aliquot-{name}")["spec"]
        assert f"aliquot-{name}.{NAMESPACE}.svc" in spec["dnsNames"]
        assert (spec["commonName"], spec["secretName"]) == (f"aliquot-{name}", f"aliquot-{name}-tls")
    assert {"server auth", "client auth"} <= set(
        one(found, "Certificate", "aliquot-scheduler")["spec"]["usages"]
    )
    annotations = one(found, "MutatingWebhookConfiguration", "aliquot")["metadata"]["annotations"]
    assert annotations == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/aliquot-webhook"}


def test_monitoring_has_the_rules_and_the_dashboard_as_they_are():
    """Word for word: both are full of what Helm would read as templates. Each service is scraped by its own name."""
    found = case("everything on")
    rules = yaml.safe_load((CHART / "files/rules/aliquot.yaml").read_text())
    assert one(found, "PrometheusRule", "aliquot")["spec"] == rules
    data = one(found, "ConfigMap", "aliquot-dashboard-aliquot")["data"]
    assert data == {"aliquot.json": (CHART / "files/dashboards/aliquot.json").read_text()}
    for name in ("agent", "scheduler", "webhook"):
        endpoint = one(found, "ServiceMonitor", f"aliquot-{name}")["spec"]["endpoints"][0]
        service = one(found, "Service", f"aliquot-{name}")["spec"]
        assert endpoint["port"] in {each["name"] for each in service["ports"]}
        assert endpoint["tlsConfig"]["serverName"] == f"aliquot-{name}.{NAMESPACE}.svc"
        assert endpoint["honorLabels"] is True


every_mode = pytest.mark.parametrize("mode", ["self", "cert-manager", "existing"])


def monitored(mode: str, *, scraped: bool = True) -> Json:
    """Values with a mode of certificates, with or without ServiceMonitors."""
    bundle = "-----BEGIN CERTIFICATE-----" if mode == "existing" else ""
    return {
        "certificates": {"mode": mode, "caBundle": bundle},
        "monitoring": {"serviceMonitors": {"enabled": scraped}},
    }


def endpoints(found: list[Json]) -> dict[tuple[str, str], Json]:
    """What Prometheus is told to scrape, by Service and port."""
    return {
        (each["metadata"]["name"], endpoint["port"]): endpoint
        for each in found
        if each["kind"] == "ServiceMonitor"
        for endpoint in each["spec"]["endpoints"]
    }


CREDENTIALS = {"bearerTokenFile", "bearerTokenSecret", "authorization", "basicAuth", "oauth2"}
"""What a ServiceMonitor's endpoint may say that is sent to the server as it is."""


@every_mode
def test_prometheus_sends_our_servers_no_token(mode: str):
    """One that was taken over would have Prometheus' rights. A certificate is shown, and its key stays where it is."""
    found = endpoints(objects(monitored(mode)))
    ours = {key: endpoint for key, endpoint in found.items() if key[1] != "kube-scheduler"}
    kept = {"aliquot-certs"} if mode == "self" else set()
    assert {name for name, _ in ours} == {"aliquot-agent", "aliquot-scheduler", "aliquot-webhook"} | kept
    for key, endpoint in ours.items():
        assert not CREDENTIALS & endpoint.keys(), key
        tls = endpoint["tlsConfig"]
        assert tls["cert"] == {"secret": {"name": "aliquot-prometheus-tls", "key": "tls.crt"}}
        assert tls["keySecret"] == {"name": "aliquot-prometheus-tls", "key": "tls.key"}


@every_mode
def test_prometheus_verifies_every_server(mode: str):
    """By our CA and the Service's name; kube-scheduler's too, to which it sends its token."""
    found = endpoints(objects(monitored(mode)))
    assert ("aliquot-scheduler", "kube-scheduler") in found
    for (name, port), endpoint in found.items():
        tls = endpoint["tlsConfig"]
        assert not tls.get("insecureSkipVerify"), port
        assert tls["serverName"] == f"{name}.{NAMESPACE}.svc"
        assert tls["ca"] == {"secret": {"name": f"{name}-tls", "key": "ca.crt"}}


@every_mode
def test_kube_scheduler_serves_with_a_certificate_that_can_be_verified(mode: str):
    """The extender's, which is mounted there; the one that it would make for itself nobody can verify."""
    pod = one(objects(monitored(mode)), "Deployment", "aliquot-scheduler")["spec"]["template"]["spec"]
    (container,) = [each for each in pod["containers"] if each["name"] == "kube-scheduler"]
    assert {
        "--tls-cert-file=/etc/aliquot/tls/tls.crt",
        "--tls-private-key-file=/etc/aliquot/tls/tls.key",
    } <= set(container["args"])
    assert {"name": "tls", "mountPath": "/etc/aliquot/tls", "readOnly": True} in container["volumeMounts"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "tls"]
    assert volume["secret"]["secretName"] == "aliquot-scheduler-tls"


def test_prometheus_certificate_is_kept_where_it_scrapes():
    """By the keeper, who has a right to this Secret, and may make it anew, then alone."""
    for scraped in (True, False):
        found = objects(monitored("self", scraped=scraped))
        secrets = {each["metadata"]["name"] for each in found if each["kind"] == "Secret"}
        named, _ = one(found, "Role", "aliquot-certs")["rules"]
        policy = one(found, "ValidatingAdmissionPolicy", "aliquot-secrets")["spec"]
        (keeper,) = one(found, "Deployment", "aliquot-certs")["spec"]["template"]["spec"]["containers"]
        leaf = "--leaf=aliquot-prometheus-tls=aliquot-prometheus"
        assert [
            "aliquot-prometheus-tls" in secrets,
            "aliquot-prometheus-tls" in named["resourceNames"],
            '"aliquot-prometheus-tls"' in policy["validations"][0]["expression"],
            leaf in keeper["args"],
        ] == [scraped] * 4


def test_prometheus_certificate_by_cert_manager_is_a_clients():
    """Good for no server, and of the CA that the services know."""
    spec = one(objects(monitored("cert-manager")), "Certificate", "aliquot-prometheus")["spec"]
    assert (spec["commonName"], spec["secretName"]) == ("aliquot-prometheus", "aliquot-prometheus-tls")
    assert spec["usages"] == ["digital signature", "client auth"]
    assert spec["issuerRef"]["name"] == "aliquot-ca"
    names = {
        each["metadata"]["name"]
        for each in objects(monitored("cert-manager", scraped=False))
        if each["kind"] == "Certificate"
    }
    assert "aliquot-prometheus" not in names


def test_who_brings_certificates_is_told_of_prometheus():
    """Nothing of ours makes its Secret then."""
    for scraped in (True, False):
        notes = files(monitored("existing", scraped=scraped))["aliquot/templates/NOTES.txt"]
        assert ("aliquot-prometheus-tls" in notes) is scraped


def test_the_notes_say_what_is_next():
    """Each command in them is one that can be run as it stands."""
    notes = files({})["aliquot/templates/NOTES.txt"]
    assert "kubectl -n aliquot-system rollout status deployment/aliquot-scheduler" in notes
    assert "{{" not in notes
    existing = files(CASES["a scheduler that is there"])["aliquot/templates/NOTES.txt"]
    assert """-o go-template='{{index .data "snippet.yaml"}}'""" in existing
    assert "only observed" in files(CASES["tried first"])["aliquot/templates/NOTES.txt"]
    assert (
        "helm uninstall aliquot --namespace aliquot-system"
        in files(CASES["about to go"])["aliquot/templates/NOTES.txt"]
    )
