"""What the running services tell Prometheus, and what the documentation says they do."""

import re
from collections import Counter
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from aliquot.cli.demo.stack import SOURCE_ROOT, Stack
from tests.integration.journey.pods import plain
from tests.observe.expressions import everything, metrics, rules

PAGE = SOURCE_ROOT / "docs" / "metrics.md"
SERVICES = ("webhook", "extender", "node-1")


def documented(page: Path) -> dict[str, str]:
    """Metric → type, from the tables of the page."""
    return dict(re.findall(r"^\| `(aliquot_\w+)` \| (\w+) \|", page.read_text(), re.MULTILINE))


def test_every_metric_is_documented_and_every_documented_one_exists(stack: Stack) -> None:
    """The page and the scrapes name the same metrics with the same types, and no sample is told twice."""
    stack.kubectl.apply(plain("measured"))
    stack.kubectl.wait_phase("measured", "Running")
    found: dict[str, str] = {}
    for service in SERVICES:
        samples: Counter[tuple[object, ...]] = Counter()
        for family in text_string_to_metric_families(stack.metrics(service)):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = family.type
            samples.update((s.name, *sorted(s.labels.items())) for s in family.samples)
        assert [sample for sample, count in samples.items() if count > 1] == []
    assert found == documented(PAGE)


def test_dashboard_and_rules_ask_for_what_is_exported_or_recorded(stack: Stack) -> None:
    """Every name in an expression is a sample's or a rule's; a metric that is renamed leaves no panel empty."""
    found = set(rules("record"))
    for service in SERVICES:
        for family in text_string_to_metric_families(stack.metrics(service)):
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
            found.update(family.name + suffix for suffix in suffixes.get(family.type, ("",)))
    wanted = {name: one.where for one in everything() for name in metrics(one.text)}
    assert {name: where for name, where in wanted.items() if name not in found} == {}
    assert len(wanted) > len(rules("record"))


def test_a_slices_limit_is_the_pods_request(stack: Stack) -> None:
    """The node agent tells the limit of a pod's slice, and the extender has counted it on the same card."""
    stack.kubectl.apply(plain("measured", mem="3Gi", core="25"))
    stack.kubectl.wait_phase("measured", "Running")
    limit = re.search(
        r'aliquot_slice_memory_limit_bytes\{card="([^"]+)".*pod="measured"\} (\S+)', stack.metrics("node-1")
    )
    assert limit is not None
    assert float(limit[2]) == 3 << 30
    promised = (
        f'aliquot_scheduler_card_memory_promised_bytes{{card="{limit[1]}",node="node-1"}} {3 << 30:.10g}'
    )
    lines = stack.metrics("extender").splitlines()
    assert (
        float(next(line for line in lines if line.startswith(promised.rpartition(" ")[0])).split()[-1])
        == 3 << 30
    )
