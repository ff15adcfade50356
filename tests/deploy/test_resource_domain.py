"""Another domain for the resources: every part of the chart follows, and refuses what the services would refuse."""

import json
import re
from typing import Any

import cel
import helm_python
import pytest
import yaml

from aliquot.api.names import DEFAULT_NAMES, ResourceNames
from aliquot.api.resource_domain import VENDORS, ResourceDomainError, names_of
from tests.deploy.charts import case, files, objects, one
from tests.deploy.test_chart_flags import parsed

DOMAIN = "gpu.example.com"
NAMES = ResourceNames.of(DOMAIN)
OF_RESOURCES = re.compile(r"aliquot\.dev/(gpu(?!-node)|mig)")
"""What a resource of the default domain looks like; a label of nodes is none."""


def test_every_service_is_told():
    """The webhook, the extender and the agents read and write the same names."""
    programs = dict(parsed(case("other names")))
    assert {name: told.names for name, told in programs.items()} == dict.fromkeys(
        ("aliquot-plugin", "aliquot-webhook", "aliquot-scheduler-ext"), NAMES
    )
    assert {told.names for told in dict(parsed(case("defaults"))).values()} == {DEFAULT_NAMES}
    assert "resource-domain" not in json.dumps(case("defaults"))


@pytest.mark.parametrize("mode", ["own", "existing"])
def test_kube_scheduler_leaves_the_chosen_names_to_the_extender(mode: str):
    """In its own configuration and in the snippet; a dialect's names stay what they are."""
    found = objects({"resourceDomain": DOMAIN, "dialects": ["hami"], "scheduler": {"mode": mode}})
    (text,) = one(found, "ConfigMap", "aliquot-scheduler")["data"].values()
    (extender,) = yaml.safe_load(text)["extenders"]
    named = [each["name"] for each in extender["managedResources"]]
    assert tuple(named[:4]) == NAMES.slices
    assert all(name.startswith("nvidia.com/") for name in named[4:])
    assert len(named) == 9


def test_nothing_else_speaks_of_resources_of_the_default_domain():
    """But what shows old names to the webhook, which refuses them, and to the policies, which guard pods under them."""
    for document in case("other names"):
        kind, name = document["kind"], document["metadata"]["name"]
        if kind in {"MutatingWebhookConfiguration", "CustomResourceDefinition"} or name == "aliquot-slices":
            continue
        text = json.dumps(document).replace('"key": "aliquot.dev/gpu"', "")
        assert not OF_RESOURCES.search(text), (kind, name)
    assert f"limits: {{{DOMAIN}/gpu-mem: 8Gi, {DOMAIN}/gpu-core: 30}}" in notes({"resourceDomain": DOMAIN})
    assert "limits: {aliquot.dev/gpu-mem: 8Gi, aliquot.dev/gpu-core: 30}" in notes({})


def notes(values: dict[str, Any]) -> str:
    """What Helm prints after an installation."""
    return files(values)["aliquot/templates/NOTES.txt"]


def test_the_agent_tolerates_the_taint_of_the_chosen_name():
    """Nodes are tainted by their resource's name where the API server lets pods that ask for it tolerate that."""
    for name, keys in (
        ("defaults", ["nvidia.com/gpu", "aliquot.dev/gpu"]),
        ("other names", ["nvidia.com/gpu", "aliquot.dev/gpu", f"{DOMAIN}/gpu"]),
    ):
        spec = one(case(name), "DaemonSet", "aliquot-agent")["spec"]["template"]["spec"]
        assert [each["key"] for each in spec["tolerations"]] == keys


def test_doctor_in_the_agents_pod_knows_the_domain():
    """By the environment, which `aliquot doctor --node` reads."""
    (container,) = one(case("other names"), "DaemonSet", "aliquot-agent")["spec"]["template"]["spec"][
        "containers"
    ]
    assert {"name": "ALIQUOT_RESOURCE_DOMAIN", "value": DOMAIN} in container["env"]


@pytest.mark.parametrize("domain", [*VENDORS, "gpu.nvidia.com", "kubernetes.io", "x.k8s.io"])
def test_chart_and_services_refuse_the_same_domains(domain: str):
    """A value that the chart lets through must not have every service end at its start."""
    with pytest.raises(ResourceDomainError):
        names_of(domain)
    with pytest.raises(helm_python.HelmError, match="choose a domain of your own"):
        files({"resourceDomain": domain})


@pytest.mark.parametrize("domain", ["example.com", "mynvidia.com", "gpu.aliquot.dev", f"{'a' * 59}.com"])
def test_chart_and_services_take_the_same_domains(domain: str):
    """Also those that only look like another project's."""
    (told,) = {program.names for program in dict(parsed(objects({"resourceDomain": domain}))).values()}
    assert told == names_of(domain)


@pytest.mark.parametrize(
    ("case_name", "resource", "seen"),
    [
        ("other names", f"{DOMAIN}/gpu-mem", True),
        ("other names", f"{DOMAIN}/mig-1g.10gb", True),
        ("other names", "aliquot.dev/gpu-mem", True),
        ("other names", "gpu.example.org/gpu-mem", False),
        ("defaults", "aliquot.dev/gpu-mem", True),
        ("defaults", f"{DOMAIN}/gpu-mem", False),
    ],
)
def test_webhook_and_policies_see_pods_of_the_chosen_names(case_name: str, resource: str, seen: bool):
    """And those of the default names: the webhook refuses new ones, and the policies guard pods that run under them."""
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {resource: "1"}}}]},
    }
    configuration = one(case(case_name), "MutatingWebhookConfiguration", "aliquot")
    (webhook,) = [each for each in configuration["webhooks"] if each["name"] == "pods.aliquot.dev"]
    (shown,) = webhook["matchConditions"]
    policy = one(case(case_name), "ValidatingAdmissionPolicy", "aliquot-slices")["spec"]
    (guarded,) = policy["matchConditions"]
    for condition in (shown, guarded):
        assert cel.evaluate(condition["expression"], {"object": pod, "oldObject": None}) is seen
    (sliced,) = [each["expression"] for each in policy["variables"] if each["name"] == "sliced"]
    inner = sliced.removeprefix("variables.containers.filter(c, ").removesuffix(")")
    holds = cel.evaluate(inner, {"c": pod["spec"]["containers"][0]})
    assert holds is (seen and "mig-" not in resource)
