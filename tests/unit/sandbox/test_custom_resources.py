"""The schemas of our own resources, as an API server holds objects to them: every CEL rule by a good and a bad one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.sandbox.cluster.apiserver.schema import errors_of, rules_of
from aliquot.sandbox.cluster.apiserver.strategy import DefinitionStrategy

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
CARD = {"uuid": "GPU-a", "index": 0, "model": "NVIDIA H200", "memoryMiB": 1000, "health": "Healthy"}
INSTANCE = {"uuid": "MIG-a", "profile": "1g.10gb", "memoryMiB": 100}


def schema(plural: str) -> dict[str, Any]:
    """What one of our resources is held to."""
    definition = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    assert DefinitionStrategy().validate(definition, None) == []
    (version,) = definition["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def pool(**spec: Any) -> dict[str, Any]:
    """A GPUPool."""
    return {"metadata": {"name": "p"}, "spec": spec}


def node(**card: Any) -> dict[str, Any]:
    """A GPUNode with one card."""
    return {"metadata": {"name": "n"}, "status": {"slicesPerCard": 10, "cards": [{**CARD, **card}]}}


def quota(**spec: Any) -> dict[str, Any]:
    """A GPUQuota of one namespace."""
    return {"metadata": {"name": "q"}, "spec": {"namespaces": ["a"], **spec}}


RULES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (
        "gpupools",
        pool(overflow="Host", memoryPercent=150),
        pool(overflow="Host"),
        "set memoryPercent above 100",
    ),
    (
        "gpupools",
        pool(overflow="None", memoryPercent=100),
        pool(overflow="Host", memoryPercent=100),
        "set memoryPercent above 100",
    ),
    (
        "gpupools",
        pool(podsMayWeakenEnforcement=True),
        pool(podsMayWeakenEnforcement=True, enforcement="off"),
        "off cannot be weakened any further",
    ),
    (
        "gpupools",
        pool(priority=5, maxPriority=5),
        pool(priority=5, maxPriority=4),
        "priority is above maxPriority",
    ),
    (
        "gpuquotas",
        quota(guaranteed={"memoryMiB": 5, "cores": 5, "cards": 5}, limit={"memoryMiB": 5, "cores": 5}),
        quota(guaranteed={"cores": 6}, limit={"memoryMiB": 5, "cores": 5}),
        "guaranteed is above limit",
    ),
    (
        "gpuquotas",
        quota(guaranteed={"cards": 5}, limit={"cards": 5}),
        quota(guaranteed={"cards": 5}, limit={"cards": 4}),
        "guaranteed is above limit",
    ),
    (
        "gpuquotas",
        quota(podMax={"memoryMiB": 5, "cores": 5}, limit={"memoryMiB": 5, "cards": 1}),
        quota(podMax={"memoryMiB": 6}, limit={"memoryMiB": 5}),
        "podMax is above limit",
    ),
    (
        "gpuquotas",
        quota(pool="", defaults={"cores": 20}),
        quota(pool="x", defaults={"cores": 20}),
        "put them into a quota without pool",
    ),
    (
        "gpuquotas",
        quota(podMax={"memoryMiB": 5, "cores": 50}, defaults={"gpuAlone": {"memoryMiB": 5, "cores": 50}}),
        quota(podMax={"memoryMiB": 5, "cores": 50}, defaults={"gpuAlone": {"memoryMiB": 5, "cores": 51}}),
        "a pod with the defaults would be above podMax",
    ),
    (
        "gpuquotas",
        quota(defaults={"gpuAlone": {"cores": 20}}),
        quota(defaults={"gpuAlone": {}}),
        "gpuAlone is empty",
    ),
    ("gpunodes", node(reserveMiB=1000), node(reserveMiB=1001), "reserveMiB is more than the card has"),
    ("gpunodes", node(mig=[INSTANCE], migEnabled=True), node(mig=[INSTANCE]), "MIG|mig"),
]


@pytest.mark.parametrize(("plural", "good", "bad", "why"), RULES)
def test_every_rule_refuses_what_it_is_for(
    plural: str, good: dict[str, Any], bad: dict[str, Any], why: str
) -> None:
    """And lets pass what is right."""
    assert errors_of(good, schema(plural)) == []
    (said,) = errors_of(bad, schema(plural))
    assert re.search(why, said)


@pytest.mark.parametrize("plural", ["gpupools", "gpunodes", "gpuquotas"])
def test_no_rule_is_left_without_an_example(plural: str) -> None:
    """A rule more in a schema needs a line more above."""
    assert len(set(rules_of(schema(plural)))) == len({why for kind, _, _, why in RULES if kind == plural})


@pytest.mark.parametrize("plural", [path.stem for path in sorted(CRDS.glob("*.yaml"))])
def test_printer_columns_show_fields_that_there_are(plural: str) -> None:
    """A column whose path the schema does not have stays empty for ever, and nobody says why."""
    definition = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    for column in version["additionalPrinterColumns"]:
        part, *rest = re.sub(r"\[[^]]*\]", "", column["jsonPath"]).strip(".").split(".")
        here = version["schema"]["openAPIV3Schema"]
        if part == "metadata":
            continue
        for name in (part, *rest):
            here = here.get("items", here)["properties"][name]
        assert here["type"] == column["type"], column["name"]


def test_a_rule_that_is_no_cel_is_refused_with_its_definition() -> None:
    """A real API server compiles rules when the definition comes."""
    definition = yaml.safe_load((CRDS / "gpupools.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [{"rule": "self.("}]
    (said,) = DefinitionStrategy().validate(definition, None)
    assert "compilation failed" in said


@pytest.mark.parametrize(
    ("plural", "good", "bad"),
    [
        ("gpupools", pool(topology="best-links"), pool(topology="nvlink")),
        ("gpunodes", node(links="NODE18 SYS", pcieRoot="pci0000:15"), node(links=18)),
        ("gpunodes", node(), {**node(), "status": {"nics": [{"numaNode": 0}]}}),
    ],
)
def test_topology_is_published_and_wished_for_in_the_words_that_there_are(
    plural: str, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    """A pool demands no links, and what is listed has a name."""
    assert errors_of(good, schema(plural)) == []
    assert errors_of(bad, schema(plural))
