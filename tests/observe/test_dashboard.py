"""The dashboard by itself: it is what its source makes, and says of everything what it is."""

import json
from itertools import combinations

import pytest

from deploy.dashboards.dashboard import FILE, build, render
from tests.observe.expressions import DASHBOARD, alerts, drawn, flat, metrics, panels, rules

MAKE = "python -m deploy.dashboards writes it anew"


def test_the_json_is_what_the_source_makes():
    """Whoever changes one changes the other."""
    assert FILE.resolve() == DASHBOARD.resolve()
    assert FILE.read_text() == render(), MAKE


def test_the_json_is_a_dashboard_as_the_sdk_knows_it():
    """It reads it back without a loss."""
    read = type(build()).from_json(json.loads(FILE.read_text()))
    assert [panel.title for panel in read.panels or ()] == [panel.title for panel in build().panels or ()]


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_each_panel_says_what_it_is(panel: dict[str, object]):
    """A title, a sentence, a unit, a name for every line, and where the data come from."""
    described = str(panel["description"])
    assert described[0].isupper()
    assert described.endswith(".")
    targets = panel["targets"]
    assert isinstance(targets, list)
    assert targets
    assert all(target["datasource"]["uid"] == "${datasource}" for target in targets)
    if panel["type"] == "table":
        headings = [one for one in panel["fieldConfig"]["overrides"] if one["properties"][0]["id"] == "unit"]  # type: ignore[index]
        assert len(headings) == len(targets)
    else:
        assert panel["fieldConfig"]["defaults"]["unit"]  # type: ignore[index]
        assert all(target["legendFormat"] for target in targets)


def test_panels_lie_beside_each_other():
    """None over another, none beyond the edge, each with a number of its own."""
    everything = flat()
    places = [
        (p["gridPos"].get("x", 0), p["gridPos"].get("y", 0), p["gridPos"]["w"], p["gridPos"]["h"])
        for p in everything
    ]
    assert all(x + w <= 24 for x, _, w, _ in places)
    for (ax, ay, aw, ah), (bx, by, bw, bh) in combinations(places, 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay
    assert len({panel["id"] for panel in everything}) == len(everything)


def test_what_is_recorded_is_read():
    """By a panel, an alert or another rule: nothing is kept for nobody."""
    read = {name for one in (*drawn(), *alerts()) for name in metrics(one.text)}
    read |= {name for rule in rules("record").values() for name in metrics(rule["expr"])}
    assert rules("record").keys() <= read


@pytest.mark.parametrize("alert", rules("alert"))
def test_each_alert_says_what_to_do(alert: str):
    """How bad it is, after how long, what has happened, what to do, and where more is written."""
    rule = rules("alert")[alert]
    page = (FILE.parents[5] / "docs" / "alerts.md").read_text()
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["for"].endswith("m")
    assert not rule["annotations"]["summary"].endswith(".")
    assert len(rule["annotations"]["description"].split(". ")) > 1
    assert rule["annotations"]["runbook"] == f"docs/alerts.md#{alert.lower()}"
    assert f"\n## {alert}\n" in page
