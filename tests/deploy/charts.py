"""The chart as a cluster would get it: rendered by Helm's own engine, without a cluster.

python -m tests.deploy.charts [CASE]        prints what a case renders to
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import yaml
from helm_python import _native

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/charts/aliquot"
NAMESPACE = "aliquot-system"
REGISTRY = "registry.example.com/gpu"
"""Where every case has its images from that says nothing else: without one the chart is refused."""
OTHERS = ("cert-manager.io/v1", "monitoring.coreos.com/v1")
"""APIs of other projects that the cluster of every case has."""
KUBERNETES = "v1.30.0"
"""The oldest that the chart is for."""

_IMAGE = {"digest": f"sha256:{'0' * 64}"}
_POD = {
    "podLabels": {"team": "gpu"},
    "podAnnotations": {"example.com/note": "x"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}],
}
_LOUD = {"logging": {"level": "debug", "format": "plain"}}

CASES: Mapping[str, Json] = {
    "defaults": {},
    "many replicas": {"webhook": {"replicas": 3}, "scheduler": {"replicas": 3}},
    "cert-manager": {"certificates": {"mode": "cert-manager", "leafDays": 30}},
    "certificates of one's own": {
        "certificates": {"mode": "existing", "caBundle": "-----BEGIN CERTIFICATE-----"}
    },
    "hami": {"dialects": ["hami"]},
    "beside hami": {
        "dialects": ["hami"],
        "dialectNamespaces": {"matchLabels": {"hami.io/webhook": "ignore"}},
    },
    "as little as works": {
        "webhook": {"replicas": 1, "quotas": False},
        "scheduler": {
            "replicas": 1,
            "extender": {"reclaimsPerMinute": 0, "preemption": "kube-scheduler", "groupGraceSeconds": 0},
        },
        "networkPolicies": {"enabled": False},
        "policies": {"enabled": False},
        "crds": {"install": False},
    },
    "a driver container": {"agent": {"driverRoot": "/run/nvidia/driver"}},
    "a scheduler that is there": {
        "scheduler": {"mode": "existing", "service": {"clusterIP": "10.96.0.77"}},
        "dialects": ["hami"],
    },
    "tried first": {"enforcement": "observe", "agent": {"arbiter": False, "forwarders": False}},
    "nodes without NVIDIA's runtime": {"agent": {"privileged": True, "hostPID": True}},
    "about to go": {"agent": {"removeFiles": True}},
    "other names": {"resourceDomain": "gpu.example.com", "dialects": ["hami"]},
    "only the agent": {
        "webhook": {"enabled": False},
        "scheduler": {"enabled": False},
        "certificates": {"mode": "existing"},
    },
    "everything on": {
        "image": {
            "registry": "registry.example.com/mirror/",
            "pullSecrets": ["mirror"],
            "pullPolicy": "Always",
        },
        "dialects": ["hami"],
        "agent": {
            "runtimeClassName": "nvidia",
            "seLinuxOptions": {"type": "spc_t"},
            "capabilities": ["SYS_ADMIN"],
            "reserve": "512Mi",
            "extraArgs": ["--sys-root=/sys"],
            "extraEnv": [{"name": "LD_LIBRARY_PATH", "value": "/driver"}],
            "extraVolumes": [{"name": "driver", "hostPath": {"path": "/driver"}}],
            "extraVolumeMounts": [{"name": "driver", "mountPath": "/driver", "readOnly": True}],
            "image": _IMAGE,
            **_POD,
            **_LOUD,
        },
        "webhook": {"image": {"tag": "1.2.3"}, "extraArgs": ["--host=::"], **_POD, **_LOUD},
        "scheduler": {
            "extender": {"volcano": ["volcano"], "cardMetrics": False, "image": _IMAGE, **_LOUD},
            "kubeScheduler": {"image": _IMAGE, "extraArgs": ["--profiling=false"]},
            **_POD,
        },
        "certificates": {"keeper": {"image": _IMAGE, "logging": {"format": "plain"}, **_POD}},
        "networkPolicies": {
            "apiServer": {"cidrs": ["192.0.2.0/24"], "ports": [6443]},
            "monitoring": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
            },
        },
        "monitoring": {
            "readers": [{"namespace": "monitoring", "name": "prometheus-k8s"}],
            "serviceMonitors": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True},
            "dashboards": {"enabled": True},
        },
    },
}


@cache
def _chart(path: Path) -> helm_python.Chart:
    return helm_python.Chart.load(path)


def files(
    values: Mapping[str, Any],
    *,
    apis: Sequence[str] = OTHERS,
    kubernetes: str = KUBERNETES,
    chart: Path = CHART,
    upgrade: bool = False,
) -> dict[str, str]:
    """Each template's text. Raises helm_python.HelmError where Helm refuses the values."""
    values = {**values, "image": {"registry": REGISTRY, **values.get("image", {})}}
    options = {
        "name": "aliquot",
        "namespace": NAMESPACE,
        "is_install": not upgrade,
        "is_upgrade": upgrade,
        "kube_version": kubernetes,
        "api_versions": list(apis),
    }
    # Chart.render cannot say which cluster it renders for; the call behind it can.
    text = _native.call_string("helm_render", _chart(chart)._raw(), json.dumps(values), json.dumps(options))
    rendered: dict[str, str] = json.loads(text)
    return rendered


def objects(values: Mapping[str, Any], *, kubernetes: str = KUBERNETES) -> list[Json]:
    """Every object that Helm would apply."""
    texts = files(values, kubernetes=kubernetes).items()
    return [found for name, text in sorted(texts) if name.endswith(".yaml") for found in read(text) if found]


class _Strict(yaml.CSafeLoader):
    """Reads YAML as the API server does, which refuses a key that is there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Json:
        """A mapping. Raises ConstructorError."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} is there twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def read(text: str) -> list[Any]:
    """The documents of a text. Raises yaml.YAMLError."""
    return list(yaml.load_all(text, _Strict))


@cache
def case(name: str) -> tuple[Json, ...]:
    """The objects of a case; not to be changed."""
    return tuple(objects(CASES[name]))


def one(found: Sequence[Json], kind: str, name: str) -> Json:
    """The object of this kind and name."""
    matching = [each for each in found if each["kind"] == kind and each["metadata"]["name"] == name]
    assert len(matching) == 1, f"{len(matching)} of {kind} {name}"
    return matching[0]


def workloads(found: Sequence[Json]) -> Iterator[Json]:
    """Every object that has a pod template."""
    return (each for each in found if each["kind"] in {"Deployment", "DaemonSet", "Job"})


def containers(found: Sequence[Json]) -> Iterator[tuple[Json, Json]]:
    """Each container with its workload."""
    for workload in workloads(found):
        spec = workload["spec"]["template"]["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            yield workload, container


if __name__ == "__main__":
    for path, text in sorted(files(CASES[" ".join(sys.argv[1:]) or "defaults"]).items()):
        print(f"# {path}\n{text}")
