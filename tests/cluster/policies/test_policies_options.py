"""What an admin can set about the policies, and what the largest pods cost."""

from typing import Any

import pytest

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.objects import Obj
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.policies.attempts import (
    MERGE,
    PLACEMENTS,
    SLICES,
    Attempt,
    annotated,
    creating,
    patching,
    pods,
)
from tests.cluster.policies.manifests import PLACEMENT, binding, container, host_path, pod
from tests.cluster.policies.world import OPERATOR, World

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("alone")]

FORGED = annotated({PLACEMENT: "mine"})


def tell_apart(world: World, values: Obj, done: Attempt, refused: Attempt, *, before: bool) -> None:
    """Have policies with these values let one attempt through and not the other.

    Without the values, before and afterwards, both are let through, or neither is.
    """

    def outcome() -> tuple[bool, bool]:
        errors = [world.refusal(one, dry_run=True) for one in (done, refused)]
        assert all(error is None or "denied request" in str(error) for error in errors), errors
        return errors[0] is None, errors[1] is None

    wait_for("the policies to be as they were", lambda: outcome() == (before, before), 60)
    world.apply_policies(**values)
    try:
        wait_for("the option to be followed", lambda: outcome() == (True, False), 60)
    finally:
        world.apply_policies()
        wait_for("the policies to be as they were", lambda: outcome() == (before, before), 60)


def forging(who: str) -> Attempt:
    """Somebody edits a placement."""
    return patching("edits a placement", FORGED, MERGE, who=who, policy=PLACEMENTS, says="")


def making(made: Obj, who: str = "alice") -> Attempt:
    """Somebody makes a pod."""
    return creating("creates a pod", SLICES, "", made, who)


def bound_by(who: str, name: str = "waiting", **annotations: str) -> Attempt:
    """Somebody binds a pod."""
    return Attempt(
        "binds",
        "",
        "",
        who,
        "POST",
        pods(name, "binding"),
        binding(name, "aliquot-trial-node-a", **annotations),
    )


HAMI = container(limits={"nvidia.com/gpu": "1"})
PLAIN_HAMI = pod("any", HAMI, schedulerName="default-scheduler")
OPENING: dict[str, tuple[Obj, Attempt, Attempt]] = {
    "an exempt account may do all of it, and nobody else": (
        {"policies": {"exemptAccounts": [OPERATOR]}},
        forging("operator"),
        forging("alice"),
    ),
    "an exempt account may have privileged pods with slices": (
        {"policies": {"exemptAccounts": [OPERATOR]}},
        making(pod("any", hostPID=True), "operator"),
        making(pod("any", hostPID=True)),
    ),
    "an extender beside another scheduler writes placements": (
        {"policies": {"placingAccounts": [OPERATOR]}},
        bound_by("operator", **{PLACEMENT: "placed"}),
        bound_by("kube-scheduler", **{PLACEMENT: "placed"}),
    ),
    "another scheduler hands out cards, too": (
        {"policies": {"schedulerNames": ["theirs"]}},
        making(pod("any", schedulerName="theirs")),
        making(pod("any", schedulerName="others")),
    ),
    "RDMA devices may be mounted, and no others": (
        {"policies": {"allowedHostPaths": ["/dev/infiniband/"]}},
        making(pod("any", volumes=host_path("/dev/infiniband/uverbs0"))),
        making(pod("any", volumes=host_path("/dev/infiniband0"))),
    ),
    "a capability may be added, and no other": (
        {"policies": {"allowedCapabilities": ["CAP_NET_ADMIN"]}},
        making(pod("any", container(securityContext={"capabilities": {"add": ["net_admin"]}}))),
        making(pod("any", container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}))),
    ),
    "Volcano's pods are let in where Volcano is served": (
        {"scheduler": {"extender": {"volcano": ["volcano"]}}},
        making(pod("any", schedulerName="volcano")),
        making(pod("any", schedulerName="others")),
    ),
    "a dialect that is off is nobody's business": (
        {"dialects": []},
        making(PLAIN_HAMI),
        making(pod("any", schedulerName="default-scheduler")),
    ),
}


SHUTTING: dict[str, tuple[Obj, Attempt, Attempt]] = {
    "nobody binds but the schedulers that are named": (
        {"policies": {"bindingAccounts": ["system:kube-scheduler"]}},
        bound_by("kube-scheduler"),
        bound_by("operator"),
    ),
    "our own scheduler is always among them": (
        {"policies": {"bindingAccounts": ["system:kube-scheduler"]}},
        bound_by("scheduler", **{PLACEMENT: "placed"}),
        bound_by("admin"),
    ),
    "further directories are kept": (
        {"policies": {"hostPaths": ["/var/run/ours/"]}},
        making(pod("any", volumes=host_path("/run/ours2"))),
        making(pod("any", volumes=host_path("/run/ours/x"))),
    ),
}


@pytest.mark.parametrize(("values", "done", "refused"), OPENING.values(), ids=OPENING.keys())
def test_an_option_opens_so_much(world: World, values: Obj, done: Attempt, refused: Attempt):
    """What was refused and now is not, beside what still is."""
    tell_apart(world, values, done, refused, before=False)


@pytest.mark.parametrize(("values", "done", "refused"), SHUTTING.values(), ids=SHUTTING.keys())
def test_an_option_shuts_so_much(world: World, values: Obj, done: Attempt, refused: Attempt):
    """What was let through and now is not, beside what still is."""
    tell_apart(world, values, done, refused, before=True)


def large(number: int, variables: int, **more: Any) -> Obj:
    """A pod with so many containers that have so many variables each."""
    env = [{"name": f"VARIABLE_OF_THE_APPLICATION_{n}", "value": f"some value {n}"} for n in range(variables)]
    return pod("large", *(container(f"c{n}", env=env, **more) for n in range(number)))


def test_the_largest_pod_is_still_looked_at_whole(world: World):
    """30 containers of 1,000 variables, 3 MB, are as much as a request may be, and not too much for an expression."""
    made = large(30, 1000)
    world.try_it(making(made), dry_run=True)
    made["spec"]["containers"][-1]["env"].insert(-1, {"name": "LD_AUDIT", "value": "x"})
    with pytest.raises(ApiError, match=r"the environment of container c29 \(LD_AUDIT\) is Aliquot's to set"):
        world.try_it(making(made), dry_run=True)


def test_a_list_that_is_too_long_is_told_in_short(world: World):
    """A message of more than 5 KiB is not shown; what is wrong is said without the names."""
    made = large(100, 100)
    for one in made["spec"]["containers"]:
        one["env"][:-1] = [{"name": f"CUDA_LIMIT_{n}", "value": "0"} for n in range(100)]
    with pytest.raises(ApiError, match="sets no environment that speaks of cards, limits or the loader"):
        world.try_it(making(made), dry_run=True)


def test_a_plain_pod_as_large_costs_nothing_more(world: World):
    """It is not looked at beyond the question whether it holds a slice."""
    made = large(30, 1000, resources={})
    made["spec"] |= {"schedulerName": "default-scheduler", "hostPID": True}
    world.try_it(making(made), dry_run=True)
