"""Where limits are not enforced."""

from collections.abc import Iterator

from aliquot.api.names import ENFORCEMENT_ANNOTATION
from aliquot.crds.gpu_pool import Enforcement
from aliquot.doctor.facts.cluster import Cluster
from aliquot.doctor.facts.objects import Workload
from aliquot.doctor.finding import UPGRADE, Told, not_checked, some, warning


def enforcement(cluster: Cluster) -> Iterator[Told]:
    """Where limits are not enforced: by the agents' flag, a pool, or a pod."""
    told = list(_by_agent(cluster.workload("aliquot-agent")))
    weak = [pool for pool in cluster.pools.get() if pool.spec.enforcement not in (None, Enforcement.ENFORCE)]
    if weak:
        told.append(
            warning(
                "GPUPools that do not enforce limits: "
                + some(f"{pool.metadata.name} ({pool.spec.enforcement})" for pool in weak),
                "kubectl edit gpupool NAME: spec.enforcement: enforce",
                [pool.metadata.name for pool in weak],
            )
        )
    may = any(pool.spec.pods_may_weaken_enforcement for pool in cluster.pools.get())
    pods = [
        pod.key for pod in cluster.pods.get().found if not pod.finished and _weak(pod.metadata.annotations)
    ]
    if pods and may:
        told.append(
            warning(
                f"pods that ask for less than enforcement, where a GPUPool lets them: {some(pods)}",
                f"Take the annotation {ENFORCEMENT_ANNOTATION} out, or podsMayWeakenEnforcement of the GPUPool.",
                sorted(pods),
            )
        )
    yield from cluster.pods.get().conclude(told, "limits are enforced everywhere")


def _by_agent(agent: Workload | None) -> Iterator[Told]:
    """What the agents do, which are those that enforce."""
    if state := _missing(agent):
        yield not_checked(
            f"aliquot-agent {state}: it enforces limits, and whether another agent does is not known",
            "aliquot doctor --node looks at each node.",
        )
    if agent is None:
        return
    word = agent.flag("enforcement", Enforcement.ENFORCE)
    if word != Enforcement.ENFORCE:
        yield warning(
            f"limits of cards in no GPUPool are {'not looked at' if word == 'off' else 'only observed'} "
            f"(the chart's enforcement={word}).",
            f"{UPGRADE} --set enforcement=enforce; running pods follow without a restart.",
        )


def _missing(agent: Workload | None) -> str:
    """Where agents are missing; empty where none is."""
    if agent is None:
        return "is not installed here"
    if agent.wanted == 0:
        return "runs on no node"
    if agent.removes_files:
        return "removes its files (agent.removeFiles=true)"
    return f"is ready on {agent.ready} of {agent.wanted} nodes" if agent.ready < agent.wanted else ""


def _weak(annotations: dict[str, str]) -> bool:
    return any(
        key.endswith(ENFORCEMENT_ANNOTATION) and value in (Enforcement.OFF, Enforcement.OBSERVE)
        for key, value in annotations.items()
    )
