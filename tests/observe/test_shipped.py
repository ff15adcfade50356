"""What the chart makes of rules and dashboard, and how it has the services scraped."""

import yaml

from tests.deploy.charts import Json, objects
from tests.observe.expressions import DASHBOARD, RULES

MONITORED = {
    "monitoring": {name: {"enabled": True} for name in ("serviceMonitors", "rules", "dashboards")},
}


def of_kind(kind: str) -> list[Json]:
    """What is rendered with all of monitoring on."""
    return [found for found in objects(MONITORED) if found["kind"] == kind]


def test_rules_and_dashboard_are_shipped_as_they_are():
    """Helm reads nothing into their braces."""
    (rule,) = of_kind("PrometheusRule")
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
    maps = [found for found in of_kind("ConfigMap") if DASHBOARD.name in found["data"]]
    assert [found["data"] for found in maps] == [{DASHBOARD.name: DASHBOARD.read_text()}]


def test_services_are_scraped_as_the_rules_expect():
    """Under their Services' names, the labels of what is measured before those of who tells it, and with the node."""
    services = {found["metadata"]["name"] for found in of_kind("Service")}
    ours = of_kind("ServiceMonitor")
    assert {found["metadata"]["name"] for found in ours} == services & {
        f"aliquot-{name}" for name in ("agent", "scheduler", "webhook", "certs")
    }
    for monitor in ours:
        assert "jobLabel" not in monitor["spec"]
        endpoint = monitor["spec"]["endpoints"][0]
        assert endpoint["scheme"] == "https"
        assert endpoint["honorLabels"] is True
        assert "node" in [one["targetLabel"] for one in endpoint["relabelings"]]
        assert endpoint["port"] != "kube-scheduler"
