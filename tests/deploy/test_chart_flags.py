"""Every flag that the chart renders is one that the program it is for accepts, and means what the values say."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from aliquot.cli.commands.certs import certs, keep
from aliquot.plugin.settings import parse_settings
from aliquot.scheduler_ext.options import parse_arguments as parse_extender
from aliquot.server.authn import Right, read_names
from aliquot.webhook.__main__ import parse_arguments as parse_webhook
from tests.deploy.charts import CASES, NAMESPACE, ROOT, case, containers, objects, one

PARSERS: dict[str, Callable[[list[str]], Any]] = {
    "aliquot-plugin": parse_settings,
    "aliquot-webhook": parse_webhook,
    "aliquot-scheduler-ext": parse_extender,
}
OTHERS = {"aliquot", "kube-scheduler", "sh"}
"""Whose command lines are judged elsewhere."""


def parsed(found: Any) -> Iterator[tuple[str, Any]]:
    """What each of our programs has understood."""
    for _, container in containers(found):
        command = container["command"]
        program, *first = command[command.index("--") + 1 :] if "--" in command else command
        assert program in PARSERS.keys() | OTHERS, program
        if program in PARSERS:
            words = [_filled(word) for word in (*first, *container["args"])]
            yield program, PARSERS[program](words)


def _filled(word: str) -> str:
    """A word as the kubelet would give it."""
    return word.replace("$(POD_IP)", "10.1.2.3").replace("$(POD_NAME)", "aliquot-scheduler-0")


@pytest.mark.parametrize("name", CASES)
def test_our_programs_accept_their_flags(name: str):
    """A flag that they do not know would have them end at once, in every replica."""
    programs = {program for program, _ in parsed(case(name))}
    assert programs or name == "about to go"


def test_values_reach_the_programs():
    """In their own words."""
    understood = dict(parsed(case("everything on")))
    agent = understood["aliquot-plugin"]
    assert agent.reserve_mib == 512
    assert (agent.log_level, agent.log_format) == ("debug", "plain")
    extender = understood["aliquot-scheduler-ext"]
    assert extender.dialects == ["hami"]
    assert extender.volcano == ["volcano"]
    assert not extender.card_metrics
    assert extender.leader_elect
    assert understood["aliquot-webhook"].host == "::"
    assert understood["aliquot-webhook"].quotas
    tried = dict(parsed(case("tried first")))["aliquot-plugin"]
    assert (str(tried.enforcement), tried.arbiter, tried.forwarders) == ("observe", False, ())


def test_further_flags_win():
    """As docs/chart.md has them for pods that have IPv6 addresses alone."""
    text = (
        (ROOT / "docs/chart.md")
        .read_text()
        .partition("the last flag of a name wins:\n\n```yaml\n")[2]
        .partition("```")[0]
    )
    understood = dict(parsed(objects(yaml.safe_load(text))))
    assert understood["aliquot-plugin"].metrics_host == "::"
    extender = understood["aliquot-scheduler-ext"]
    assert (extender.host, extender.advertise_url) == ("::", "https://[10.1.2.3]:9443")


def test_the_agent_finds_the_hosts_directories_where_it_is_told():
    """CDI specs name its paths, and the container runtime reads them on the host: each is mounted at its own path."""
    values = {
        "agent": {"kubeletDir": "/k", "stateDir": "/data/aliquot", "runDir": "/run/gpu", "cdiDir": "/etc/cdi"}
    }
    found = objects(values)
    agent = dict(parsed(found))["aliquot-plugin"]
    assert (str(agent.state_dir), str(agent.run_dir), str(agent.cdi_dir)) == (
        "/data/aliquot",
        "/run/gpu/host",
        "/etc/cdi",
    )
    pod = one(found, "DaemonSet", "aliquot-agent")["spec"]["template"]["spec"]
    paths = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    mounted = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    ours = {"state": "/data/aliquot", "run": "/run/gpu", "cdi": "/etc/cdi"}
    kubelets = {"device-plugins": "/k/device-plugins", "pod-resources": "/k/pod-resources"}
    assert (ours | kubelets).items() <= paths.items()
    assert (ours | kubelets).items() <= mounted.items()
    assert agent.device_plugins.as_posix() == kubelets["device-plugins"]
    assert agent.pod_resources_socket.parent.as_posix() == kubelets["pod-resources"]


@pytest.mark.parametrize(("name", "root"), [("defaults", "/"), ("a driver container", "/run/nvidia/driver")])
def test_the_agent_sees_the_driver_and_calls_it_as_the_host_does(name: str, root: str):
    """Of the host's own root only what the driver may be in, and nothing to write."""
    driver = dict(parsed(case(name)))["aliquot-plugin"].driver
    assert driver.host.as_posix() == root
    pod = one(case(name), "DaemonSet", "aliquot-agent")["spec"]["template"]["spec"]
    paths = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    seen = [
        each
        for each in pod["containers"][0]["volumeMounts"]
        if each["mountPath"].startswith(str(driver.seen))
    ]
    assert all(each["readOnly"] for each in seen)
    below = {each["mountPath"].removeprefix(str(driver.seen)): paths[each["name"]] for each in seen}
    assert below == ({"/usr": "/usr"} if root == "/" else {"": root})


@pytest.mark.parametrize("mode", ["self", "cert-manager", "existing"])
def test_every_service_serves_the_certificate_that_is_made_for_it(mode: str):
    """The pod mounts that Secret key by key; callers without a right are sent away."""
    values = {"certificates": {"mode": mode, "caBundle": "x" if mode == "existing" else ""}}
    found = objects(values)
    for workload in ("DaemonSet/aliquot-agent", "Deployment/aliquot-scheduler", "Deployment/aliquot-webhook"):
        kind, name = workload.split("/")
        pod = one(found, kind, name)["spec"]["template"]["spec"]
        (volume,) = [each for each in pod["volumes"] if each["name"] == "tls"]
        assert volume["secret"]["secretName"] == f"{name}-tls"
        assert {each["key"] for each in volume["secret"]["items"]} == {"tls.crt", "tls.key", "ca.crt"}
        if mode == "cert-manager":
            one(found, "Certificate", name)
    for _, options in parsed(found):
        assert options.serving.accept_tokens if hasattr(options, "serving") else options.accept_tokens


def test_the_keeper_of_certificates_understands_its_flags():
    """Names are those by which callers know the services; the rights are for these Secrets and no others."""
    found = objects({"certificates": {"leafDays": 30}, "webhook": {"enabled": False}})
    (container,) = one(found, "Deployment", "aliquot-certs")["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["aliquot", certs.name, keep.name]
    with keep.make_context("keep", list(container["args"])) as understood:
        leaves = {wanted.secret: wanted.names for wanted in understood.params["leaves"]}
        assert understood.params["leaf_days"] == 30
        assert understood.params["metrics_leaf"] in leaves
        assert understood.params["accept_tokens"]
    services = ("agent", "scheduler", "certs")
    assert leaves == {f"aliquot-{name}-tls": (f"aliquot-{name}.{NAMESPACE}.svc",) for name in services}
    secrets = {each["metadata"]["name"] for each in found if each["kind"] == "Secret"}
    assert secrets == {"aliquot-ca", *leaves}
    named, makes = one(found, "Role", "aliquot-certs")["rules"]
    assert set(named["resourceNames"]) == secrets
    assert makes == {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}


@pytest.mark.parametrize("mode", ["self", "cert-manager"])
def test_prometheus_certificate_opens_metrics_alone(mode: str):
    """Of every server, by the common name that the certificate has; the scheduler's goes on to open the extender."""
    found = objects({"certificates": {"mode": mode}, "monitoring": {"serviceMonitors": {"enabled": True}}})
    names: dict[str, list[str]] = {}
    for program, options in parsed(found):
        assert options.client_ca.as_posix() == "/etc/aliquot/tls/ca.crt", program
        names[program] = list(options.client_names)
    assert names.keys() == PARSERS.keys()
    if mode == "cert-manager":
        prometheus = one(found, "Certificate", "aliquot-prometheus")["spec"]["commonName"]
    else:
        (container,) = one(found, "Deployment", "aliquot-certs")["spec"]["template"]["spec"]["containers"]
        with keep.make_context("keep", list(container["args"])) as understood:
            names["aliquot"] = list(understood.params["client_names"])
            (leaf,) = [
                one
                for one in understood.params["leaves"]
                if one.secret == "aliquot-prometheus-tls"  # noqa: S105 - its name
            ]
        prometheus = leaf.common_name
    for program, given in names.items():
        rights = read_names(given)
        assert rights[prometheus] == {Right.METRICS}, program
        whole = {name for name, opened in rights.items() if opened != {Right.METRICS}}
        assert whole == ({"aliquot-scheduler"} if program == "aliquot-scheduler-ext" else set())


@pytest.mark.parametrize("policies", [{"enabled": False}, {"validationActions": ["Warn"]}])
def test_the_keeper_makes_no_secrets_where_no_policy_says_which(policies: dict[str, Any]):
    """A right to make Secrets is one to make an account's token."""
    (rule,) = one(objects({"policies": policies}), "Role", "aliquot-certs")["rules"]
    assert "create" not in rule["verbs"]


@pytest.mark.parametrize("name", ["defaults", "hami", "a scheduler that is there"])
def test_the_schedulers_entry_keeps_what_matters(name: str):
    """Over TLS with a certificate shown; never ignorable, by node names, all nodes looked at."""
    (text,) = one(case(name), "ConfigMap", "aliquot-scheduler")["data"].values()
    configuration = yaml.safe_load(text)
    (extender,) = configuration["extenders"]
    assert extender["enableHTTPS"]
    assert extender["urlPrefix"].startswith("https://")
    assert {"caFile", "certFile", "keyFile", "serverName"} == extender["tlsConfig"].keys()
    assert (extender["ignorable"], extender["nodeCacheCapable"]) == (False, True)
    assert configuration["percentageOfNodesToScore"] == 100
    assert {"schedulerName": "aliquot-scheduler"} in configuration["profiles"]
