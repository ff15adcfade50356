"""All checks, in the order in which they are made. `docs/doctor.md` has a row for each name."""

from typing import Final

from aliquot.doctor.check import Check
from aliquot.doctor.checks import (
    admission,
    agent,
    components,
    enforcement,
    extender,
    machine,
    names,
    neighbours,
    nodes,
    pods,
    pools,
    scheduler,
    trust,
    versions,
)
from aliquot.doctor.facts.cluster import Cluster
from aliquot.doctor.facts.node import Node

CLUSTER_CHECKS: Final[tuple[Check[Cluster], ...]] = (
    Check("kubernetes", "versions", "API server and kubelets are supported", versions.kubernetes),
    Check("runtimes", "versions", "nodes' container runtimes do CDI", versions.runtimes),
    Check("skew", "versions", "all parts of Aliquot are of one version", versions.skew),
    Check("components", "components", "the chart's workloads are there and ready", components.components),
    Check("services", "components", "webhook and extender answer", components.services),
    Check("definitions", "components", "the CRDs are there", components.definitions),
    Check("webhook", "components", "the webhooks are scoped and fail closed", admission.webhook),
    Check("scheduler", "components", "kube-scheduler asks the extender", scheduler.scheduler),
    Check("extender-errors", "components", "no pod waits for an answer of the extender", extender.errors),
    Check("certificates", "trust", "certificates are good and trusted", trust.certificates),
    Check("rights", "trust", "accounts may do what they need", trust.rights),
    Check("policies", "trust", "the admission policies hold everywhere", admission.policies),
    Check("enforcement", "trust", "limits are enforced", enforcement.enforcement),
    Check("pools", "nodes", "every GPUPool has cards, and no card is over-promised", pools.pools),
    Check("inventory", "nodes", "nodes with cards have an agent and a true GPUNode", nodes.inventory),
    Check("names", "nodes", "all parts and pods use the same names of resources", names.names),
    Check("slices", "nodes", "no slice is stranded", nodes.slices),
    Check("unscheduled", "nodes", "no pod with a slice came past the webhook", pods.unscheduled),
    Check("kubelet-restarts", "nodes", "pods outlive a restart of their kubelet", pods.kubelet_restarts),
    Check("neighbours", "nodes", "nobody else hands out the same cards", neighbours.neighbours),
    Check("bypasses", "nodes", "no pod gets cards without a slice", neighbours.bypasses),
)

NODE_CHECKS: Final[tuple[Check[Node], ...]] = (
    Check("driver", "driver", "NVIDIA's driver answers and is supported", machine.driver),
    Check("cards", "driver", "all cards answer and can be shared", machine.cards),
    Check("device-files", "driver", "the driver's device nodes are there", machine.device_files),
    Check("runtime", "runtime", "the container runtime reads the agent's CDI files", machine.runtime),
    Check("cdi", "runtime", "the CDI files are good", machine.cdi),
    Check("runc", "runtime", "runc has no known way out", machine.runc),
    Check("toolkit", "runtime", "NVIDIA's toolkit gives no card by environment", machine.toolkit),
    Check("sockets", "agent", "kubelet and agent answer", agent.sockets),
    Check("registered", "agent", "the kubelet has our slices and nobody else's", agent.registered),
    Check("processes", "agent", "whoever uses a card has a slice of it", agent.processes),
    Check("leftovers", "agent", "nothing is left of containers that have ended", agent.leftovers),
)
