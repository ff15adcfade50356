"""Builds the ledger again after a restart of this agent, from whatever was not lost.

In this order: tenancies on disk; pages of pods whose tenancy was lost (they say what each container may
use); pods the kubelet runs for which a placement is known. The first two are taken as they are, since
those pods may be running; of the third only what fits, since their containers still have to pass the gate.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from aliquot.api.names import PLACEMENT_ANNOTATION, ResourceNames
from aliquot.kube.objects import Pod
from aliquot.libshim.control_page import CardLimit, Control, read_control
from aliquot.libshim.page_file import PageError
from aliquot.plugin.cluster.pods import Pods
from aliquot.plugin.container.tenant_pages import TenantDirectories, TenantPages
from aliquot.plugin.kubelet.checkpoint import read_checkpoint
from aliquot.plugin.kubelet.pod_resources import Running
from aliquot.plugin.state.admitted_pods import AdmittedPod, AdmittedPods
from aliquot.plugin.state.node_ledger import Charges, LedgerError, NodeLedger
from aliquot.request.core_policy import NO_POLICY, WHOLE, CoreMode, CorePolicy
from aliquot.request.placement import (
    CardShare,
    Charge,
    ContainerPlacement,
    Placement,
    PlacementError,
    read_placement,
)
from aliquot.request.pod_request import ContainerKind
from aliquot.units import MIB

log = logging.getLogger(__name__)

MIG_UUID_PREFIX = "MIG-"


def recover_admitted_pods(admitted_pods: AdmittedPods, tenants: TenantDirectories, node: str) -> None:
    """Makes a tenancy of the pages of each pod that has lost its own."""
    for uid in sorted(tenants.pod_uids()):
        if admitted_pods.get(uid) is None:
            controls = dict(readable_controls(tenants.of_pod(uid)))
            if controls:
                admitted_pods.save(admitted_pod_of_pages(uid, node, controls))
                log.warning("tenancy of pod %s recovered from its pages", uid)


def readable_controls(pages: tuple[TenantPages, ...]) -> Iterator[tuple[str, Control]]:
    """The control pages of a pod by container."""
    for tenant in pages:
        try:
            yield tenant.container, read_control(tenant.control)
        except (OSError, PageError) as error:
            log.warning(
                "pages of pod %s, container %s, left out: %s", tenant.pod_uid, tenant.container, error
            )


def admitted_pod_of_pages(uid: str, node: str, controls: dict[str, Control]) -> AdmittedPod:
    """What the pages of a pod add up to; every container is taken to run, which is never too little."""
    containers = tuple(
        ContainerPlacement(
            name,
            ContainerKind.REGULAR,
            shares,
            burst=control.cards[0].grant_bytes is not None,
            policy=policy_of(control.cards[0]),
        )
        for name, control in controls.items()
        if (shares := shares_of(control))
    )
    namespace, _, rest = next(iter(controls.values())).tenant.partition("/")
    placement = Placement(uid, node, containers) if containers else None
    return AdmittedPod(uid, namespace, rest.partition("/")[0], placement, recovered=True)


def shares_of(control: Control) -> tuple[CardShare, ...]:
    """The parts of cards that a control page grants."""
    return tuple(
        CardShare(card.uuid, max(1, card.memory_bytes // MIB), card.core_percent)
        for card in control.cards
        if not card.uuid.startswith(MIG_UUID_PREFIX)
    )


def policy_of(limit: CardLimit) -> CorePolicy:
    """How the time of a container was held, as far as its page tells."""
    if not limit.core_share_bp:
        return NO_POLICY
    bursts = 0 < limit.core_percent < limit.core_most_percent
    most = limit.core_most_percent if bursts and limit.core_most_percent < WHOLE else None
    mode = (CoreMode.BURST if bursts else CoreMode.CAPPED) if limit.core_percent else None
    return CorePolicy(mode, most, limit.priority)


def adopt_admitted_pods(ledger: NodeLedger, admitted_pods: AdmittedPods) -> None:
    """Enters every pod that was let in."""
    for admitted in admitted_pods:
        if admitted.placement:
            ledger.adopt(admitted.pod_uid, admitted.placement.charges())
    for uuid in ledger.overcommitted():
        log.error("more of card %s is promised than it has; nobody else is let in on it", uuid)


def adopt_running(  # noqa: PLR0917 - each is of another type
    ledger: NodeLedger,
    pods: Pods,
    admitted_pods: AdmittedPods,
    running: Running,
    checkpoint: Path,
    names: ResourceNames,
) -> None:
    """Enters pods that hold slices and have a placement, if they fit: those with a running container first.

    A pod whose tenancy was read off its pages is running: it keeps what these say, and gets what the placement
    says more.
    """
    holding = {(h.namespace, h.pod) for h in running.holders if h.devices.get(names.gpu)}
    uids = {entry.pod_uid for entry in read_checkpoint(checkpoint) if entry.resource == names.gpu}
    for pod in sorted(pods.placed(), key=has_run, reverse=True):
        meta = pod.metadata
        known = admitted_pods.get(meta.uid)
        off_pages = known.placement if known and known.recovered else None
        if (meta.uid in ledger and not off_pages) or (
            (meta.namespace, meta.name) not in holding and meta.uid not in uids
        ):
            continue
        try:
            placement = read_placement(meta.annotations, PLACEMENT_ANNOTATION, meta.uid)
            if placement and off_pages:
                ledger.adopt(meta.uid, larger(off_pages.charges(), placement.charges()))
            elif placement:
                ledger.admit(meta.uid, placement.charges())
        except (PlacementError, LedgerError) as error:
            log.error("pod %s holds slices, but is not let in: %s", pod.key, error)  # noqa: TRY400


def larger(one: Charges, other: Charges) -> Charges:
    """The larger charge of each card."""
    return {uuid: one.get(uuid, Charge()) | other.get(uuid, Charge()) for uuid in one.keys() | other.keys()}


def has_run(pod: Pod) -> bool:
    """Whether the kubelet has told of a container of the pod that was started."""
    told = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return any("waiting" not in status.state or status.restart_count for status in told)


def unknown_pods(
    running: Running, pods: Pods, admitted_pods: AdmittedPods, names: ResourceNames
) -> set[tuple[str, str]]:
    """Pods, as (namespace, name), that hold slices though neither our files nor the API server told of them."""
    known = {(admitted.namespace, admitted.pod) for admitted in admitted_pods}
    known |= {(name.namespace, name.name) for uid in pods.known_uids() if (name := pods.name_of(uid))}
    return {(h.namespace, h.pod) for h in running.holders if h.devices.get(names.gpu)} - known
