"""All PromQL that we ship: of the dashboard, of its variables, and of the rules."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILES = Path(__file__).parents[2] / "deploy" / "charts" / "aliquot" / "files"
DASHBOARD = FILES / "dashboards" / "aliquot.json"
RULES = FILES / "rules" / "aliquot.yaml"

VARIABLES = {"$__rate_interval": "5m", "$node": ".*", "$model": ".*", "$namespace": ".*"}
_VARIABLE = re.compile("|".join(map(re.escape, sorted(VARIABLES, key=len, reverse=True))))
_QUERY = re.compile(r"label_values\((?P<selector>.*), (?P<label>\w+)\)")
_METRIC = re.compile(r"(?<![\w:])(?:[a-z_]+:)?aliquot_[a-z_]+(?::[a-z0-9]+)?")
_THRESHOLD = re.compile(r"\s(?:==|>|<)\s[\d.]+(?:\s\*\s\d+)?")


@dataclass(frozen=True)
class Expression:
    """One, and where it stands."""

    where: str
    text: str


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels, those of closed rows included, without the headings of rows."""
    return [one for one in flat() if one["type"] != "row"]


def flat() -> list[dict[str, Any]]:
    """All panels and rows, one after another."""
    listed = json.loads(DASHBOARD.read_text())["panels"]
    return [one for outer in listed for one in (outer, *outer.get("panels", ()))]


def drawn() -> Iterator[Expression]:
    """What panels ask for, with everything chosen."""
    for panel in panels():
        for target in panel["targets"]:
            yield Expression(f"panel {panel['title']!r} {target['refId']}", _filled(target["expr"]))


def chosen() -> Iterator[Expression]:
    """What the variables choose from, as Grafana asks for it: the values of a label among a selector's series."""
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        found = _QUERY.fullmatch(str(variable.get("query", "")))
        if found:
            text = f"count by ({found['label']}) ({_filled(found['selector'])})"
            yield Expression(f"variable {variable['name']}", text)


def rules(kind: str) -> dict[str, dict[str, Any]]:
    """The rules by name; `kind` is `alert` or `record`."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule[kind]: rule for group in groups for rule in group["rules"] if kind in rule}


def recorded() -> Iterator[Expression]:
    """What is recorded, under its name and as it is worked out."""
    for name, rule in rules("record").items():
        yield Expression(f"rule {name}", name)
        yield Expression(f"rule {name}", rule["expr"])


def alerts() -> Iterator[Expression]:
    """What alerts look at."""
    for name, rule in rules("alert").items():
        yield Expression(name, rule["expr"])


def bare(expression: str) -> str:
    """An alert's expression without the numbers that it compares with."""
    return _THRESHOLD.sub("", expression)


def metrics(expression: str) -> set[str]:
    """The names of our metrics and recorded series in an expression, with their suffixes."""
    return set(_METRIC.findall(expression))


def everything() -> list[Expression]:
    """All of it."""
    return [*drawn(), *chosen(), *recorded(), *alerts()]


def _filled(text: str) -> str:
    return _VARIABLE.sub(lambda found: VARIABLES[found[0]], text)
