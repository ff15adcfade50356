"""How long the webhook takes to answer when a pod is made, and how long the API server says that it takes.

    python bench/webhook.py [--pods 1000] [--at-once 8]

A real etcd and kube-apiserver, the chart's configuration and one replica of the webhook, all on this machine. First
reviews go to the webhook itself, one after the other. Then pods are made as dry runs, one after the other and several
at once; of `apiserver_admission_webhook_admission_duration_seconds`, which has the API server's own work for the call
in it, come the mean and how many were done within 5 ms. Where Kubernetes' programs cannot be built, it says so and
ends. One JSON object a line.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import urllib3
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

sys.path.insert(0, str(Path(__file__).parents[1]))

from aliquot.sandbox.cluster.kubectl import Kubectl
from aliquot.sandbox.cluster.objects import Obj
from tests.cluster.control_plane import LOOPBACK, ControlPlane
from tests.cluster.programs import program
from tests.cluster.release import NAMESPACE, PODS, Release
from tests.tools.debian import NotAvailableError

HISTOGRAM = "apiserver_admission_webhook_admission_duration_seconds"
BOUND_S = "0.005"
SERVICE = f"aliquot-webhook.{NAMESPACE}.svc"
LIMITS = {"aliquot.dev/gpu-mem": "8Gi", "aliquot.dev/gpu-core": "30"}


def pod(containers: int, variables: int) -> Obj:
    """A pod whose containers have a slice each."""
    env = [{"name": f"VARIABLE_OF_THE_APPLICATION_{n}", "value": f"value {n}"} for n in range(variables)]
    one = {"image": "registry.example/app", "resources": {"limits": LIMITS}, "env": env}
    spec = {"containers": [{"name": f"c{n}", **one} for n in range(containers)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks"}, "spec": spec}


CASES = {
    "a pod with a slice": pod(1, 3),
    "a pod of ten containers with a slice and 100 variables each": pod(10, 100),
}


def samples(kubectl: Kubectl) -> Iterator[Sample]:
    """What the API server has counted of our webhook for pods."""
    for family in text_string_to_metric_families(kubectl.text("/metrics")):
        if family.name == HISTOGRAM:
            yield from (one for one in family.samples if one.labels["name"] == "pods.aliquot.dev")


def counted(kubectl: Kubectl) -> tuple[float, float, float]:
    """Answers, those within the bound, and seconds of all."""
    found = list(samples(kubectl))
    return (
        sum(one.value for one in found if one.name.endswith("_count")),
        sum(one.value for one in found if one.labels.get("le") == BOUND_S),
        sum(one.value for one in found if one.name.endswith("_sum")),
    )


def make(clients: list[Kubectl], body: Obj, count: int) -> None:
    """Dry runs of a pod, each client one after the other."""

    def some(client: Kubectl, share: int) -> None:
        for _ in range(share):
            client.request("POST", PODS, body, query={"dryRun": "All"})

    with ThreadPoolExecutor(len(clients)) as threads:
        for done in [threads.submit(some, client, count // len(clients)) for client in clients]:
            done.result()


def answered(release: Release, port: int, body: Obj, count: int) -> list[float]:
    """Sorted seconds of calls of the webhook itself, one after the other."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"uid": "1", "kind": kind, "namespace": "default", "operation": "CREATE", "object": body}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    sent = json.dumps(review).encode()
    pool = urllib3.HTTPSConnectionPool(
        LOOPBACK,
        port,
        ca_certs=str(release.mounted("aliquot-webhook-tls") / "ca.crt"),
        assert_hostname=SERVICE,
    )
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        answer = pool.request("POST", "/mutate", body=sent)
        taken.append(time.perf_counter() - begin)
        assert answer.json()["response"]["allowed"]
    return sorted(taken)


def measure_itself(release: Release, port: int, count: int) -> None:
    """Print what each case takes the webhook."""
    for what, body in CASES.items():
        taken = answered(release, port, body, count)
        p50, p99 = (round(taken[int(count * part)] * 1000, 2) for part in (0.5, 0.99))
        print(json.dumps({"what": what, "answered_p50_ms": p50, "answered_p99_ms": p99, "of": count}))


def measure_admission(release: Release, count: int, at_once: int) -> None:
    """Print what each case takes the API server, alone and beside others."""
    clients = [Kubectl(release.plane.kubeconfig) for _ in range(at_once)]
    for (what, body), together in itertools.product(CASES.items(), (1, at_once)):
        make(clients[:together], body, count // 10)
        before = counted(release.kubectl)
        make(clients[:together], body, count)
        answers, within, seconds = (
            after - first for first, after in zip(before, counted(release.kubectl), strict=True)
        )
        figures = {"mean_ms": round(seconds / answers * 1000, 2), "within_5_ms": round(within / answers, 4)}
        print(json.dumps({"what": what, "at_once": together, **figures, "of": int(answers)}), flush=True)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=8)
    given = parser.parse_args()
    try:
        for name in ("etcd", "kube-apiserver", "helm"):
            program(name)
    except NotAvailableError as error:
        print(f"NOT RUN: {error}", file=sys.stderr)
        return
    with ControlPlane() as plane:
        plane.namespace("default")
        release = Release(plane)
        release.install()
        release.keep_certificates()
        port = release.start_webhook()
        measure_itself(release, port, given.pods)
        release.lead_webhook_to(port)
        measure_admission(release, given.pods, given.at_once)


if __name__ == "__main__":
    main()
