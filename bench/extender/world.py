"""A cluster to measure the extender in: nodes of eight cards, slices on them at random, and the pods to come.

Ninety classes of pods, a few of which are most of the pods, as in published traces of shared clusters: parts of a card
of many sizes, whole cards, and now and then several cards at once. Objects are as long as real ones are: pods of
about 4 KB with their managed fields, node names of 43 characters.
"""

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aliquot.api.names import PLACEMENT_ANNOTATION
from aliquot.request.placement import CardShare, ContainerPlacement, Placement, encode_placement
from aliquot.request.pod_request import ContainerKind

Document = dict[str, Any]

CARDS = 8
MODELS = (("NVIDIA A100-SXM4-80GB", 81920), ("NVIDIA L40S", 46068), ("NVIDIA A10", 23028))
MODEL_OF = (0, 0, 0, 0, 0, 0, 1, 1, 1, 2)
"""Six nodes in ten are of the first model, three of the second, one of the third."""
CPUS, MIB = 128, 1 << 20
WORKERS = 16
"""Of kube-scheduler; each takes nodes in runs, so the names it sends are that many runs shuffled together."""
SHARES_MIB = (1024, 2048, 3072, 4096, 6144, 8192, 10240, 12288, 16384, 20480, 24576, 32768)
CORES = (0, 0, 10, 20, 25, 50)


@dataclass(frozen=True)
class Kind:
    """A class of pods; no memory means whole cards."""

    cards: int
    mib: int
    cores: int
    cpus: int
    weight: float

    @property
    def limits(self) -> dict[str, str]:
        """Its resources, as the webhook leaves them."""
        found = {"cpu": str(self.cpus), "memory": f"{self.cpus * 4}Gi", "aliquot.dev/gpu": str(self.cards)}
        if self.mib:
            found["aliquot.dev/gpu-mem"] = f"{self.mib}Mi"
        if self.cores:
            found["aliquot.dev/gpu-core"] = str(self.cores)
        return found


def node_name(n: int) -> str:
    """As long as a cloud's names are."""
    return f"ip-10-{n // 256:03}-{n % 256:03}-17.eu-central-1.compute.internal"[:43]


def kinds() -> list[Kind]:
    """The classes, the frequent ones first."""
    dice = random.Random(7)  # noqa: S311 - a figure, no secret
    shares = [(1, mib, dice.choice(CORES)) for mib in SHARES_MIB for _ in range(5)]
    whole = [(1, 0, 0)] * 23 + [(2, 0, 0)] * 3 + [(2, 16384, 0), (4, 0, 0), (4, 8192, 0), (8, 0, 0)]
    dice.shuffle(shares)
    return [
        *(Kind(*one, 1 + n % 8, 3.0 / (n + 3)) for n, one in enumerate(shares)),
        *(Kind(*one, 2 + n % 12, (0.6 if one[0] == 1 else 0.06) / (n + 3)) for n, one in enumerate(whole)),
    ]


def fresh_kinds(count: int) -> Iterator[Kind]:
    """Classes that nothing else in the cluster is of."""
    for n in range(count):
        yield Kind(1, 1500 + 700 * n, 3 + n, 1 + n % 7, 1.0)


class Pods:
    """Numbered pods, each of its class for ever; whoever makes two of them has the same twice."""

    def __init__(self, more: Sequence[Kind] = ()) -> None:
        """Take the usual classes, and some more."""
        self.kinds = [*kinds(), *more]
        usual = len(self.kinds) - len(more)
        self._weights = list(itertools.accumulate(kind.weight for kind in self.kinds[:usual]))

    def draw(self, dice: random.Random) -> int:
        """The position of a class, by how frequent it is."""
        return dice.choices(range(len(self._weights)), cum_weights=self._weights)[0]

    def limits(self, kind: int) -> dict[str, str]:
        """What a pod of a class asks for; class -1 has no slice."""
        return self.kinds[kind].limits if kind >= 0 else {"cpu": "1", "memory": "2Gi"}


def pod_name(kind: int, number: int) -> str:
    """From which its class can be read back."""
    return f"inference-{kind}-{number}"


def kind_of(name: str) -> int:
    """The class of a pod of this name."""
    return int(name.removeprefix("inference-").rpartition("-")[0])


def uid_of(name: str) -> str:
    """As long as a UID is."""
    return f"2ed99c6b-ecd1-4c30-{name[10:]:0>17}"


def pending(pods: Pods, name: str) -> Document:
    """A pod as kube-scheduler sends it."""
    limits = pods.limits(kind_of(name))
    return {
        "metadata": _metadata(name),
        "spec": _spec(limits),
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def bound(pods: Pods, name: str, version: int, node: str, annotation: str) -> bytes:
    """A pod as the API server has it once it runs."""
    found = pending(pods, name)
    meta = found["metadata"]
    meta["resourceVersion"] = str(version)
    meta["annotations"] |= {PLACEMENT_ANNOTATION: annotation} if annotation else {}
    meta["managedFields"] = MANAGED
    found["spec"]["nodeName"] = node
    found["status"] = RUNNING
    return json.dumps({"apiVersion": "v1", "kind": "Pod", **found}, separators=(",", ":")).encode()


def gpu_node(n: int) -> Document:
    """What the agent of a node publishes."""
    model, mib = MODELS[MODEL_OF[n % len(MODEL_OF)]]
    cards = [
        {
            "uuid": uuid(n, i),
            "index": i,
            "model": model,
            "memoryMiB": mib,
            "numaNode": i // 4,
            "health": "Healthy",
        }
        for i in range(CARDS)
    ]
    status = {"slicesPerCard": 10, "cards": cards}
    meta = {"name": node_name(n), "uid": f"gpunode-{n}", "resourceVersion": "1"}
    return {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUNode", "metadata": meta, "status": status}


def node(n: int) -> Document:
    """What its kubelet publishes."""
    room = {"cpu": str(CPUS), "memory": "1024Gi", "pods": "250", "aliquot.dev/gpu": str(10 * CARDS)}
    labels = {
        "kubernetes.io/hostname": node_name(n),
        "topology.kubernetes.io/zone": f"eu-central-1{'abc'[n % 3]}",
    }
    meta = {"name": node_name(n), "uid": f"node-{n}", "resourceVersion": "1", "labels": labels}
    status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


def uuid(n: int, i: int) -> str:
    """As long as a card's is."""
    return f"GPU-8a56a4bc-f184-11ef-9f5e-{n:08}{i:04}"


@dataclass
class _Card:
    n: int
    i: int
    mib: int
    left: int
    cores: int = 100
    slots: int = 10

    def takes(self, kind: Kind) -> bool:
        return (
            self.mib >= kind.mib
            and self.left >= (kind.mib or self.mib)
            and self.cores >= self._cores(kind)
            and self.slots > 0
        )

    def take(self, kind: Kind) -> CardShare:
        mib, cores = kind.mib or self.mib, self._cores(kind)
        self.left, self.cores, self.slots = self.left - mib, self.cores - cores, self.slots - 1
        return CardShare(uuid(self.n, self.i), mib, cores, exclusive=not kind.mib)

    def _cores(self, kind: Kind) -> int:
        return kind.cores if kind.mib else 100


def placed(pods: Pods, nodes: int, count: int, seed: int = 3) -> Iterator[tuple[str, str, str]]:
    """Name, node and annotation of so many pods with slices, each on a node at random, on its first cards with room."""
    dice = random.Random(seed)  # noqa: S311
    cards = [
        [_Card(n, i, mib, mib) for i in range(CARDS) for mib in [MODELS[MODEL_OF[n % len(MODEL_OF)]][1]]]
        for n in range(nodes)
    ]
    cpus = [CPUS] * nodes
    number = 0
    while number < count:
        kind = pods.draw(dice)
        wanted, n = pods.kinds[kind], dice.randrange(nodes)
        room = [card for card in cards[n] if card.takes(wanted)][: wanted.cards]
        if len(room) < wanted.cards or cpus[n] < wanted.cpus:
            continue
        cpus[n] -= wanted.cpus
        name = pod_name(kind, number)
        number += 1
        shares = tuple(card.take(wanted) for card in room)
        container = ContainerPlacement("main", ContainerKind.REGULAR, shares)
        yield name, node_name(n), encode_placement(Placement(uid_of(name), node_name(n), (container,)))


def without_slices(nodes: int, first: int, count: int) -> Iterator[tuple[str, str, str]]:
    """Pods that nobody has to place on cards."""
    for number in range(first, first + count):
        yield pod_name(-1, number), node_name(number % nodes), ""


def offers(nodes: int, count: int, seed: int = 5) -> list[bytes]:
    """Node names as kube-scheduler sends them: from a start that moves, in the order in which its workers end."""
    dice = random.Random(seed)  # noqa: S311
    names = [node_name(n) for n in range(nodes)]
    return [
        json.dumps(_shuffled(names, dice.randrange(nodes), dice), separators=(",", ":")).encode()
        for _ in range(count)
    ]


def _shuffled(names: list[str], start: int, dice: random.Random) -> list[str]:
    """Runs of about the square root of all, handed to workers whose steps interleave."""
    turned = names[start:] + names[:start]
    size = max(1, int(len(names) ** 0.5))
    waiting = iter([turned[n : n + size] for n in range(0, len(turned), size)])
    busy = [iter(run) for run in itertools.islice(waiting, WORKERS)]
    found: list[str] = []
    while busy:
        worker = dice.randrange(len(busy))
        name = next(busy[worker], None)
        if name is not None:
            found.append(name)
        elif (run := next(waiting, None)) is not None:
            busy[worker] = iter(run)
        else:
            del busy[worker]
    return found


def _metadata(name: str) -> Document:
    kind = kind_of(name)
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"inference-{kind}",
        "uid": f"{kind:036}",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "generateName": f"inference-{kind}-",
        "namespace": f"team-{kind % 20}",
        "uid": uid_of(name),
        "resourceVersion": "437",
        "generation": 1,
        "creationTimestamp": "2026-11-21T01:07:22Z",
        "labels": {
            "app": f"inference-{kind}",
            "pod-template-hash": "7d9c6b8f5d",
            "team": f"team-{kind % 20}",
        },
        "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
        "ownerReferences": [owner],
    }


def _spec(limits: dict[str, str]) -> Document:
    return {
        "containers": [{**_CONTAINER, "resources": {"limits": limits, "requests": limits}}],
        **_REST_OF_SPEC,
    }


_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_MOUNT = {"name": "kube-api-access-r8fks", "readOnly": True, "mountPath": _TOKEN}
_CONTAINER = {
    "name": "main",
    "image": "registry.example.com/ml/inference-server:24.10-py3",
    "command": ["/opt/server/bin/serve", "--model-repository=/models", "--http-port=8000"],
    "env": [{"name": f"MODEL_OPTION_{n}", "value": f"value-{n}"} for n in range(6)],
    "ports": [{"containerPort": 8000, "protocol": "TCP"}],
    "volumeMounts": [{"name": "models", "mountPath": "/models"}, _MOUNT],
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
_NOT_READY = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
_REST_OF_SPEC = {
    "volumes": [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
        {
            "name": "kube-api-access-r8fks",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {
                        "configMap": {
                            "name": "kube-root-ca.crt",
                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                        }
                    },
                ],
                "defaultMode": 420,
            },
        },
    ],
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "securityContext": {},
    "schedulerName": "aliquot-scheduler",
    "tolerations": [
        {"key": f"node.kubernetes.io/{word}", **_NOT_READY} for word in ("not-ready", "unreachable")
    ],
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
_FIELDS = {f"f:field-{n}": {".": {}, f'k:{{"name":"part-{n}"}}': {"f:a": {}, "f:b": {}}} for n in range(12)}
MANAGED = [
    {
        "manager": who,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-21T01:07:22Z",
        "fieldsV1": _FIELDS,
    }
    for who in ("kube-controller-manager", "kubelet")
]
RUNNING = {
    "phase": "Running",
    "conditions": [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-11-21T01:07:25Z"}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ],
    "hostIP": "10.0.0.17",
    "podIP": "10.244.17.3",
    "startTime": "2026-11-21T01:07:22Z",
    "containerStatuses": [
        {
            "name": "main",
            "state": {"running": {"startedAt": "2026-11-21T01:07:24Z"}},
            "ready": True,
            "restartCount": 0,
            "image": "registry.example.com/ml/inference-server:24.10-py3",
            "imageID": f"registry.example.com/ml/inference-server@sha256:{'ab' * 32}",
            "containerID": f"containerd://{'cd' * 32}",
        }
    ],
    "qosClass": "Burstable",
}
