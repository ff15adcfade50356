"""The rules by themselves, under Prometheus' own tool: when each alert fires, and that its test would notice."""

import copy
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.observe.cases import CASES, Case
from tests.observe.expressions import RULES, rules
from tests.observe.prometheus import program
from tests.observe.records import RECORDS

pytestmark = pytest.mark.slow

ALERTS = rules("alert")
DIGITS = ".4g"
VALUE = '{{ printf "%' + DIGITS + '" $value }}'


@pytest.fixture(scope="module")
def promtool() -> Path:
    """Debian's."""
    return program("promtool")


def test_the_rules_are_well_formed(promtool: Path):
    """Expressions and templates."""
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_alerts_fire_when_they_should_and_only_then(promtool: Path, tmp_path: Path):
    """All of them, with their labels and values; and what is recorded is as expected."""
    done = tried(promtool, tmp_path, whole(), CASES, RECORDS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_story_in_which_it_fires_and_is_quiet_before(alert: str):
    """And one that is over when it fires no more would be noticed, too: labels in its texts are among its own."""
    mine = [case for case in CASES if case.alert == alert]
    assert any(case.fires and case.quiet for case in mine)
    fired = [one.labels.keys() for case in mine for found in case.fires.values() for one in found]
    texts = " ".join(ALERTS[alert]["annotations"].values())
    bare = re.sub(r"\{\{ with \$labels\.node \}\}.*?\{\{ end \}\}", "", texts)
    assert all(set(re.findall(r"\$labels\.(\w+)", bare)) <= labels for labels in fired)


@pytest.mark.parametrize("alert", ALERTS)
def test_a_broken_alert_is_noticed(promtool: Path, tmp_path: Path, alert: str):
    """One that never fires, one that always does, and one that does not wait."""
    mine = [case for case in CASES if case.alert == alert]
    assert tried(promtool, tmp_path, whole(), mine).returncode == 0
    for broken in mutants(alert):
        assert tried(promtool, tmp_path, broken, mine).returncode == 1, broken


def mutants(alert: str) -> Iterator[dict[str, Any]]:
    """The rules with one alert broken."""
    for change in ({"expr": "vector(0) == 1"}, {"expr": "vector(1)"}, {"for": "0s"}):
        broken = whole()
        for group in broken["groups"]:
            for rule in group["rules"]:
                if rule.get("alert") == alert:
                    rule.update(change)
        yield broken


def whole() -> dict[str, Any]:
    """The rules; in place of texts, alerts say their value, which promtool compares."""
    written: dict[str, Any] = copy.deepcopy(yaml.safe_load(RULES.read_text()))
    for group in written["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                rule["annotations"] = {"value": VALUE}
    return written


def tried(
    promtool: Path,
    directory: Path,
    rules_: dict[str, Any],
    cases: Sequence[Case],
    records: Sequence[dict[str, Any]] = (),
) -> subprocess.CompletedProcess[str]:
    """Run promtool on rules and stories."""
    (directory / "rules.yaml").write_text(yaml.safe_dump(rules_))
    tests = [story(case) for case in cases] + list(records)
    body = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (directory / "tests.yaml").write_text(yaml.safe_dump(body))
    command = [promtool, "test", "rules", directory / "tests.yaml"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def story(case: Case) -> dict[str, Any]:
    """A case as promtool reads it."""
    severity = ALERTS[case.alert]["labels"]

    def expected(minute: int) -> list[dict[str, Any]]:
        return [
            {
                "exp_labels": {**severity, **one.labels},
                "exp_annotations": {"value": format(one.value, DIGITS)},
            }
            for one in case.fires.get(minute, ())
        ]

    return {
        "name": case.story,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": [
            {"alertname": case.alert, "eval_time": f"{minute}m", "exp_alerts": expected(minute)}
            for minute in (*case.quiet, *case.fires)
        ],
    }
