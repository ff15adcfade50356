"""The values: every one described, every wrong one refused in words that name it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import helm_python
import pytest
import yaml

from tests.deploy.charts import CASES, CHART, ROOT, files

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with what it refers to."""
    for reference in (schema.get("$ref"), *(each.get("$ref") for each in schema.get("allOf", ()))):
        if reference:
            return {**SCHEMA["definitions"][reference.rpartition("/")[2]], **schema}
    return schema


def properties(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value that the schema knows by name."""
    for name, below in resolved(schema).get("properties", {}).items():
        yield f"{path}.{name}".lstrip("."), resolved(below)
        yield from properties(below, f"{path}.{name}")


def test_every_value_is_described_and_has_a_default():
    """Whoever reads values.yaml or the schema alone has seen them all."""
    free = re.compile(r"(^global$|^agent[.]seLinuxOptions[.]|[.](requests|limits|\w+Affinity|match\w+)$)")
    for path, schema in properties(SCHEMA):
        assert schema.get("description"), path
        if not free.search(path):
            found: Any = DEFAULTS
            for part in path.split("."):
                assert part in found, path
                found = found[part]


def test_nothing_unknown_is_let_through():
    """At no level: a misspelt value would be ignored."""
    for path, schema in properties(SCHEMA):
        if schema.get("type") == "object" and "properties" in schema:
            assert schema["additionalProperties"] is False, path


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"webhok": {}}, "webhok"),
        ({"webhook": {"replica": 2}}, "replica"),
        ({"webhook": {"replicas": 0}}, "/webhook/replicas"),
        ({"enforcement": "audit"}, "/enforcement"),
        ({"dialects": ["hamy"]}, "/dialects/0"),
        ({"agent": {"reserve": "lots"}}, "/agent/reserve"),
        ({"agent": {"slicesPerCard": "10"}}, "/agent/slicesPerCard"),
        ({"scheduler": {"extender": {"nodePolicy": "binpack"}}}, "/scheduler/extender/nodePolicy"),
        ({"certificates": {"mode": "none"}}, "/certificates/mode"),
        ({"image": {"registry": "https://x"}}, "/image/registry"),
        (
            {"image": {"registry": ""}},
            "image.registry: name the registry where you have pushed Aliquot's images",
        ),
        ({"image": {"registry": "somebody"}}, "from a public registry"),
        (
            {"image": {"registry": None}},
            "image.registry: name the registry where you have pushed Aliquot's images",
        ),
        ({"certificates": {"mode": "existing"}}, "set certificates.caBundle to the PEM of the CA"),
        ({"certificates": {"caBundle": "x"}}, "certificates.caBundle is for certificates.mode existing"),
        ({"certificates": {"mode": "cert-manager"}}, "install cert-manager first, or use mode self"),
        ({"monitoring": {"rules": {"enabled": True}}}, "install Prometheus Operator first"),
        ({"resourceDomain": 5}, "/resourceDomain"),
        (
            {"resourceDomain": "GPU.example.com"},
            'resourceDomain: "GPU.example.com" is not a DNS name in lower case with a dot in it',
        ),
        ({"resourceDomain": "gpu"}, "choose a domain of your own, such as gpu.example.com"),
        ({"resourceDomain": f"{'a' * 60}.com"}, "at most 63 characters"),
        ({"resourceDomain": "requests.example.com"}, "which has a meaning of its own in a ResourceQuota"),
        ({"resourceDomain": "nvidia.com"}, '"nvidia.com" belongs to Kubernetes or another project'),
        ({"agent": {"runDir": "/run/../"}}, "is no absolute path of a directory below /"),
    ],
)
def test_a_wrong_value_is_refused_in_words(values: dict[str, Any], words: str):
    """The message names the value, and where there is a way out, says it. The cluster has nothing of other projects."""
    with pytest.raises(helm_python.HelmError, match=re.escape(words)):
        files(values, apis=())


@pytest.mark.parametrize("name", CASES)
def test_an_upgrade_renders_what_an_installation_does(name: str):
    """Nothing is made at random: an upgrade with the same values changes nothing."""
    assert files(CASES[name], upgrade=True) == files(CASES[name])


def test_the_docs_speak_of_values_that_there_are():
    """With the names that Helm would take, but for the one that shows how a wrong one is refused."""
    known = {path for path, _ in properties(SCHEMA)}
    text = "".join(
        (ROOT / "docs" / f"{name}.md").read_text()
        for name in ("install", "chart", "observability", "callers", "migrate-from-hami")
    )
    words = re.findall(r"[`' ]((?:" + "|".join(SCHEMA["properties"]) + r")[.][A-Za-z.]+)", text)
    spoken = {word.rstrip(".") for word in words if not word.endswith((".crt", ".json", ".yaml"))}
    assert "agent.removeFiles" in spoken
    assert spoken - known == {"webhook.replica"}
