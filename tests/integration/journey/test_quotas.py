"""Quotas from admission to the scheduler: defaults, what one pod may have, and a status that follows."""

from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.cli.demo.stack import SOURCE_ROOT, Stack
from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.journey.pods import container, plain, pod

pytestmark = pytest.mark.slow

QUOTAS = "gpuquotas.aliquot.dev"
EXAMPLES = SOURCE_ROOT / "examples" / "quota"
MEM, CORE = "aliquot.dev/gpu-mem", "aliquot.dev/gpu-core"


@pytest.fixture
def held(stack: Stack) -> Iterator[Stack]:
    """The running stack, with no quota and no pod of the examples' team before and after."""
    yield stack
    for quota in stack.kubectl.list(QUOTAS):
        stack.kubectl.delete(QUOTAS, quota["metadata"]["name"])
    for left in stack.kubectl.list("pods", "team-a"):
        stack.kubectl.delete("pods", left["metadata"]["name"], "team-a", grace=0)
    wait_for("the team's pods to go", lambda: not stack.kubectl.list("pods", "team-a"))


def write(stack: Stack, **spec: Any) -> None:
    """The admin writes a quota of the pods' namespace."""
    quota = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "GPUQuota", "metadata": {"name": "team"}}
    stack.kubectl.apply({**quota, "spec": {"namespaces": ["default"], **spec}})


def test_a_card_alone_is_the_quotas_default(held: Stack) -> None:
    """The webhook learns of the quota while it runs; two such pods run on one card."""
    write(held, defaults={"gpuAlone": {"memoryMiB": 2048, "cores": 20}})
    names = iter(range(1000))

    def limits() -> Any:
        name = f"alone-{next(names)}"
        made = held.kubectl.create(pod(name, container("main", {"gpu": "1"})))["spec"]["containers"][0][
            "resources"
        ]
        if MEM not in made["limits"]:
            held.kubectl.delete("pods", name, grace=0)
        return made["limits"] if MEM in made["limits"] else None

    assert wait_for("the default to be written", limits) == {"aliquot.dev/gpu": "1", MEM: "2Gi", CORE: "20"}
    held.kubectl.create(pod("second", container("main", {"gpu": "1"})))
    held.kubectl.wait_phase("second", "Running")


def test_a_pod_too_large_for_its_namespace_is_never_made(held: Stack) -> None:
    """And one that is made in time is refused by filter once the quota is there."""
    write(held, podMax={"memoryMiB": 4096})
    refusals: list[str] = []

    def refused() -> bool:
        try:
            held.kubectl.create(plain("large", "5Gi"))
        except ApiError as error:
            refusals.append(str(error))
            return True
        held.kubectl.delete("pods", "large", grace=0)
        return False

    wait_for("the webhook to refuse", refused)
    assert (
        "GPUQuota team: a pod of namespace default asks for 5Gi of GPU memory, and may have 4Gi at most"
        in refusals[0]
    )
    held.kubectl.create(pod("percent", container("main", {"mem-percent": "50"})))
    held.kubectl.wait_for("pods", "percent", lambda p: "asks for 8" in str(p.get("status")))


def test_the_status_of_a_quota_follows_its_pods(held: Stack) -> None:
    """Used, and what of it is borrowed."""
    write(held, guaranteed={"memoryMiB": 1024})
    held.kubectl.apply(plain("one", "3Gi", "30"))
    held.kubectl.wait_phase("one", "Running")
    held.kubectl.wait_for(
        QUOTAS,
        "team",
        lambda q: q.get("status", {}).get("borrowed", {}) == {"memoryMiB": 2048, "cores": 30, "cards": 1},
    )
    held.kubectl.delete("pods", "one", grace=0)
    held.kubectl.wait_for(QUOTAS, "team", lambda q: q["status"]["used"]["memoryMiB"] == 0)


def test_the_teams_of_the_examples(held: Stack) -> None:
    """A default, a loan, and a pod that waits for what is guaranteed to others until the loan is given back."""
    held.kubectl.apply(EXAMPLES / "quota.yaml")
    held.kubectl.apply(EXAMPLES / "pods.yaml")
    for name in ("small", "borrower"):
        held.kubectl.wait_phase(name, "Running", namespace="team-a")
    held.kubectl.wait_for(
        "pods", "waiting", lambda p: "guaranteed to others" in str(p.get("status")), namespace="team-a"
    )
    held.kubectl.delete("pods", "borrower", "team-a", grace=0)
    held.kubectl.wait_phase("waiting", "Running", namespace="team-a")
    small = held.kubectl.get("pods", "small", "team-a")["spec"]["containers"][0]["resources"]["limits"]
    assert small == {"aliquot.dev/gpu": "1", MEM: "4Gi", CORE: "20"}
