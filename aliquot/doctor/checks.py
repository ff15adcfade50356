"""All checks, in the order in which they are made. `docs/doctor.md` has a section for each name."""

from typing import Final

from aliquot.doctor import (
    check_admission,
    check_agent,
    check_components,
    check_enforcement,
    check_extender,
    check_machine,
    check_names,
    check_neighbours,
    check_nodes,
    check_pods,
    check_pools,
    check_scheduler,
    check_trust,
    check_versions,
)
from aliquot.doctor.check import Check
from aliquot.doctor.cluster import Cluster
from aliquot.doctor.node import Node

CLUSTER_CHECKS: Final[tuple[Check[Cluster], ...]] = (
    Check("kubernetes", "versions", "API server and kubelets are supported", check_versions.kubernetes),
    Check("runtimes", "versions", "nodes' container runtimes do CDI", check_versions.runtimes),
    Check("skew", "versions", "all parts of Aliquot are of one version", check_versions.skew),
    Check(
        "components", "components", "the chart's workloads are there and ready", check_components.components
    ),
    Check("services", "components", "webhook and extender answer", check_components.services),
    Check("definitions", "components", "the CRDs are there", check_components.definitions),
    Check("webhook", "components", "the webhooks are scoped and fail closed", check_admission.webhook),
    Check("scheduler", "components", "kube-scheduler asks the extender", check_scheduler.scheduler),
    Check(
        "extender-errors", "components", "no pod waits for an answer of the extender", check_extender.errors
    ),
    Check("certificates", "trust", "certificates are good and trusted", check_trust.certificates),
    Check("rights", "trust", "accounts may do what they need", check_trust.rights),
    Check("policies", "trust", "the admission policies hold everywhere", check_admission.policies),
    Check("enforcement", "trust", "limits are enforced", check_enforcement.enforcement),
    Check("pools", "nodes", "every GPUPool has cards, and no card is over-promised", check_pools.pools),
    Check("inventory", "nodes", "nodes with cards have an agent and a true GPUNode", check_nodes.inventory),
    Check("names", "nodes", "all parts and pods use the same names of resources", check_names.names),
    Check("slices", "nodes", "no slice is stranded", check_nodes.slices),
    Check("unscheduled", "nodes", "no pod with a slice came past the webhook", check_pods.unscheduled),
    Check(
        "kubelet-restarts", "nodes", "pods outlive a restart of their kubelet", check_pods.kubelet_restarts
    ),
    Check("neighbours", "nodes", "nobody else hands out the same cards", check_neighbours.neighbours),
    Check("bypasses", "nodes", "no pod gets cards without a slice", check_neighbours.bypasses),
)

NODE_CHECKS: Final[tuple[Check[Node], ...]] = (
    Check("driver", "driver", "NVIDIA's driver answers and is supported", check_machine.driver),
    Check("cards", "driver", "all cards answer and can be shared", check_machine.cards),
    Check("device-files", "driver", "the driver's device nodes are there", check_machine.device_files),
    Check("runtime", "runtime", "the container runtime reads the agent's CDI files", check_machine.runtime),
    Check("cdi", "runtime", "the CDI files are good", check_machine.cdi),
    Check("runc", "runtime", "runc has no known way out", check_machine.runc),
    Check("toolkit", "runtime", "NVIDIA's toolkit gives no card by environment", check_machine.toolkit),
    Check("sockets", "agent", "kubelet and agent answer", check_agent.sockets),
    Check("registered", "agent", "the kubelet has our slices and nobody else's", check_agent.registered),
    Check("processes", "agent", "whoever uses a card has a slice of it", check_agent.processes),
    Check("leftovers", "agent", "nothing is left of containers that have ended", check_agent.leftovers),
)
