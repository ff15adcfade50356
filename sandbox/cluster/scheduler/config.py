"""What the stand-in reads of a KubeSchedulerConfiguration: profile names and extenders."""

from __future__ import annotations

import base64
import re
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from aliquot.sandbox.cluster.objects import Obj

DEFAULT_TIMEOUT_S = 5.0

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class ExtenderConfig:
    """One `extenders:` entry; the timeout in seconds. An empty verb: not called for that."""

    url: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    preempt_verb: str = ""
    weight: int = 1
    timeout: float = DEFAULT_TIMEOUT_S
    names_only: bool = False
    ignorable: bool = False
    managed: dict[str, bool] = field(default_factory=dict)  # resource → ignored by the scheduler
    tls: Obj | None = None

    @classmethod
    def of(cls, entry: Obj) -> ExtenderConfig:
        """Read an entry of the configuration."""
        url: str = entry["urlPrefix"]
        secure = entry.get("enableHTTPS", False)
        if secure and url.startswith("http://"):
            url = "https://" + url.removeprefix("http://")
        managed = entry.get("managedResources") or ()
        return cls(
            url=url.rstrip("/"),
            filter_verb=entry.get("filterVerb", ""),
            prioritize_verb=entry.get("prioritizeVerb", ""),
            bind_verb=entry.get("bindVerb", ""),
            preempt_verb=entry.get("preemptVerb", ""),
            weight=entry.get("weight", 1),
            timeout=seconds(entry.get("httpTimeout", "5s")),
            names_only=entry.get("nodeCacheCapable", False),
            ignorable=entry.get("ignorable", False),
            managed={m["name"]: m.get("ignoredByScheduler", False) for m in managed},
            tls=(entry.get("tlsConfig") or {}) if secure or url.startswith("https://") else None,
        )

    def trust(self) -> ssl.SSLContext | bool:
        """TLS towards the extender, client certificate included, read once as by the real scheduler."""
        if self.tls is None:
            return False
        authority = self.tls.get("caData")
        context = ssl.create_default_context(
            cafile=self.tls.get("caFile"), cadata=base64.b64decode(authority).decode() if authority else None
        )
        if self.tls.get("certFile"):
            context.load_cert_chain(self.tls["certFile"], self.tls["keyFile"])
        if self.tls.get("insecure"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True)
class SchedulerConfig:
    """The whole configuration."""

    profiles: frozenset[str]
    extenders: tuple[ExtenderConfig, ...]

    @classmethod
    def read(cls, path: Path) -> SchedulerConfig:
        """Read a KubeSchedulerConfiguration file."""
        document = yaml.safe_load(path.read_text()) or {}
        profiles = document.get("profiles") or [{}]
        return cls(
            frozenset(p.get("schedulerName", "default-scheduler") for p in profiles),
            tuple(ExtenderConfig.of(entry) for entry in document.get("extenders") or ()),
        )


def seconds(duration: str) -> float:
    """A Go duration ("1m30s", "500ms") in seconds; ValueError when it is none."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", duration)
    if "".join(number + unit for number, unit in parts) != duration or not parts:
        raise ValueError(f"not a duration: {duration!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
