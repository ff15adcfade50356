"""A real Prometheus, of Debian's package, that scrapes a running stack with the rules that we ship."""

import copy
import json
import math
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from aliquot.cli.demo.stack import LOOPBACK, Stack
from aliquot.sandbox.cluster.processes import Process, free_port, wait_for
from tests.observe.expressions import RULES
from tests.tools.debian import unpack_or_skip

PACKAGE = "prometheus"
EVERY = "3s"
JUDGED_EVERY = "1s"
PATIENCE_S = 120.0
SCHEDULED_FOR = "2s"
"""What stands for an alert's `for`, which is minutes."""

Labels = Mapping[str, str]
Samples = list[tuple[Labels, float]]


def program(name: str) -> Path:
    """`prometheus` or `promtool`; the test is skipped loudly where the package cannot be had."""
    return unpack_or_skip(PACKAGE) / "usr" / "bin" / name


@dataclass(frozen=True)
class Target:
    """A service as a ServiceMonitor finds it.

    Attributes:
        job: The name of its Service.
        address: Host and port.
        labels: What the discovery knows of it: namespace, pod, node.
        ca: Vouches for its certificate; None where it speaks plain HTTP.
        more: What else the scrape needs: `authorization`, or `tls_config` with a client's certificate.
    """

    job: str
    address: str
    labels: Labels
    ca: Path | None = None
    more: Mapping[str, Any] | None = None

    def scrape(self) -> dict[str, Any]:
        """Its part of the configuration. The labels of what we measure go before those of the target."""
        asked = copy.deepcopy(dict(self.more or {}))
        tls = {"ca_file": str(self.ca), **asked.pop("tls_config", {})} if self.ca else {}
        return {
            "job_name": self.job,
            "scheme": "https" if self.ca else "http",
            "honor_labels": True,
            "static_configs": [{"targets": [self.address], "labels": dict(self.labels)}],
            **({"tls_config": tls} if tls else {}),
            **asked,
        }


def targets(stack: Stack) -> list[Target]:
    """The services of a stack."""
    ca = stack.root / "tls" / "ca.crt"

    def target(job: str, port: int, ca: Path | None, **labels: str) -> Target:
        return Target(job, f"{LOOPBACK}:{port}", {"namespace": "aliquot-system", **labels}, ca)

    agents = [
        target("aliquot-agent", node.metrics_port, None, pod=f"aliquot-agent-{name}", node=name)
        for name, node in stack.nodes.items()
    ]
    return [
        *agents,
        target("aliquot-webhook", stack.webhook_port, ca, pod="aliquot-webhook-0"),
        target("aliquot-scheduler", stack.extender_port, ca, pod="aliquot-scheduler-0", endpoint="extender"),
    ]


class Prometheus:
    """Scrapes while the context lasts."""

    def __init__(self, root: Path, scraped: Sequence[Target]) -> None:
        root.mkdir()
        self.url = f"http://{LOOPBACK}:{free_port()}"
        flags = [
            f"--config.file={_configured(root, scraped)}",
            f"--storage.tsdb.path={root / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--log.level=warn",
        ]
        argv = [str(program("prometheus")), *flags]
        self._process = Process("prometheus", argv, root / "log", dict(os.environ), self._ready)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def query(self, expression: str) -> Samples:
        """What an expression gives now, without what is no number.

        Raises:
            AssertionError: Prometheus finds fault with it.
        """
        found = self._get("query", query=expression)["result"]
        samples = [(one["metric"], float(one["value"][1])) for one in found]
        return [(labels, value) for labels, value in samples if not math.isnan(value)]

    def wait_for(self, expression: str) -> Samples:
        """What an expression gives as soon as it gives anything."""
        return wait_for(expression, lambda: self.query(expression), PATIENCE_S)

    def active(self) -> dict[str, list[Labels]]:
        """The labels of alerts that are pending or fire, by name."""
        found: dict[str, list[Labels]] = {}
        for alert in self._get("alerts")["alerts"]:
            found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return found

    def described(self, alert: str) -> str:
        """The description of the first active alert of a name."""
        active = self._get("alerts")["alerts"]
        return next(a["annotations"]["description"] for a in active if a["labels"]["alertname"] == alert)

    def unscraped(self) -> dict[str, str]:
        """Targets that are not well, with the reason."""
        found = self._get("targets")["activeTargets"]
        return {one["labels"]["job"]: one["lastError"] for one in found if one["health"] != "up"}

    def cpu_seconds(self) -> float:
        """Processor time that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def broken_rules(self) -> dict[str, str]:
        """Rules whose last evaluation failed, with the reason."""
        rules = [rule for group in self._get("rules")["groups"] for rule in group["rules"]]
        return {rule["name"]: rule["lastError"] for rule in rules if rule.get("lastError")}

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, what: str, **parameters: str) -> Any:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error


def _configured(root: Path, scraped: Sequence[Target]) -> Path:
    """Write the configuration and the rules, with `for` shortened, and judged as often as the configuration says."""
    hasty = root / "rules.yaml"
    written = re.sub(r"^( +for: ).*$", rf"\g<1>{SCHEDULED_FOR}", RULES.read_text(), flags=re.MULTILINE)
    hasty.write_text(re.sub(r"^    interval: .*\n", "", written, flags=re.MULTILINE))
    jobs: dict[str, dict[str, Any]] = {}
    for target in scraped:
        one = target.scrape()
        jobs.setdefault(target.job, {**one, "static_configs": []})["static_configs"] += one["static_configs"]
    timing = {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": JUDGED_EVERY}
    config = {"global": timing, "rule_files": [str(hasty)], "scrape_configs": list(jobs.values())}
    file = root / "prometheus.yaml"
    file.write_text(yaml.safe_dump(config))
    return file
