"""The node agent and the kubelet, as they are on the node, and who uses the cards."""

from collections.abc import Iterator

from aliquot.doctor.facts.fact import NotKnownError
from aliquot.doctor.facts.gpu_software import HANDERS
from aliquot.doctor.facts.node import Card, Node, Process, Tenant
from aliquot.doctor.finding import Told, count, failure, not_checked, ok, some, warning

LASTING_S = 600
"""So long after its last process the pages of a container should be gone."""
WATCHERS = ("nv-hostengine", "dcgm-exporter", "dcgmi", "nvidia-smi", "nvidia-persiste")
"""Programs that look at cards and may open a context for it, by their names in the kernel (15 bytes)."""
OURS = ("aliquot-plugin",)


def sockets(node: Node) -> Iterator[Told]:
    """The kubelet's sockets, and the agent's beside them."""
    answering = list[str]()
    for path, fact in node.sockets.items():
        try:
            why = fact.get()
        except NotKnownError as error:
            yield not_checked(str(error))
            continue
        if why:
            whose = "the agent" if path.name.startswith("aliquot-") else "the kubelet"
            yield failure(
                f"{whose} does not answer at {path}: {why}",
                f"See that {whose} runs, and, in a pod, that the directory of the host is mounted.",
                [str(path)],
            )
        else:
            answering.append(path.name)
    if not any(path.name.startswith("aliquot-") for path in node.sockets):
        yield failure(
            f"no device plugin of Aliquot has a socket in {node.places.kubelet}/device-plugins.",
            "See that the agent runs here: kubectl -n aliquot-system get pods -o wide; its log says what it waits for.",
        )
    elif len(answering) == len(node.sockets):
        yield ok(f"the kubelet and {count(len(answering) - 2, 'socket')} of the agent answer")


def registered(node: Node) -> Iterator[Told]:
    """What device plugins have told the kubelet: our slices, and nobody else's cards."""
    found = node.registered.get()
    slices = found.get(node.names.gpu, 0)
    ours = sum(number for resource, number in found.items() if node.names.owns(resource))
    if not ours:
        yield failure(
            "the kubelet knows no slices of this node.",
            "See the agent's log; it registers again when it is restarted.",
        )
    others = False
    for one in HANDERS:
        served = [resource for resource, number in found.items() if number and one.serves(resource)]
        if served:
            others = True
            yield failure(
                f"{one.name} has given the kubelet {some(served)} of the same cards.", one.remedy, served
            )
    if ours and not others:
        yield ok(f"the kubelet has {slices} ids of slices, and nobody else's cards")


def processes(node: Node) -> Iterator[Told]:
    """Processes on cards that belong to no slice: whatever let them in, these are the ones."""
    using, tenants = node.processes.get(), node.tenants.get()
    strangers, unsure = list[str](), list[str]()
    for card in node.driver.get().cards:
        for pid in card.processes:
            process = using[pid]
            if process.name in (*WATCHERS, *OURS):
                continue
            owned = _owned(process, card, tenants)
            if owned is None:
                unsure.append(_told(process, card))
            elif not owned:
                strangers.append(_told(process, card))
    if strangers:
        yield failure(
            f"processes on cards that have no slice of them: {some(strangers)}",
            "Find the pod (its UID is in /proc/PID/cgroup) and give it a slice. How it came in: by "
            "NVIDIA_VISIBLE_DEVICES of its image, privileged, by another device plugin, or as the host's own.",
            strangers,
        )
    if unsure:
        yield not_checked(
            f"whether {some(unsure)} has a slice cannot be seen: be root, with the capability SYS_PTRACE"
        )
    if not strangers and not unsure:
        number = len({pid for card in node.driver.get().cards for pid in card.processes})
        yield ok(
            f"{count(number, 'process').replace('processs', 'processes')} on cards, each with a slice of its card"
        )


def _owned(process: Process, card: Card, tenants: tuple[Tenant, ...]) -> bool | None:
    """Whether a process has a slice of a card; None where that cannot be seen.

    In a container by the control page that is mounted there, which nobody can bring along: another container of the
    same pod has none. Outside of one by the usage pages.
    """
    here = [tenant for tenant in tenants if card.uuid in tenant.cards or _mig_of(tenant)]
    if process.pod and process.pages is not None:
        return any(tenant.page in process.pages for tenant in here)
    if process.identity is not None and any(process.identity in tenant.processes for tenant in here):
        return True
    if process.pod:
        return None if any(tenant.pod == process.pod for tenant in here) else False
    return None if process.identity is None else False


def _mig_of(tenant: Tenant) -> bool:
    """Whether a tenant has MIG instances, whose processes NVML tells of with the parent card."""
    return any(uuid.startswith("MIG-") for uuid in tenant.cards)


def _told(process: Process, card: Card) -> str:
    where = f", pod {process.pod}" if process.pod else ""
    return f"{process.name or 'process'} {process.pid} on card {card.index}{where}"


def leftovers(node: Node) -> Iterator[Told]:
    """Pages and CDI files of containers that are gone."""
    living = node.living.get()
    dead = [
        f"{tenant.pod}/{tenant.container}"
        for tenant in node.tenants.get()
        if tenant.pod and tenant.pod not in living and tenant.age_s > LASTING_S
    ]
    specs = [spec for fact in node.specs.values() for spec in fact.get() or ()]
    orphans = [str(s.file) for s in specs if s.pages and not any(page.exists() for page in s.pages)]
    if dead:
        yield warning(
            f"pages of containers that have ended: {some(dead)}",
            "The agent removes them; restart it where it does not (kubectl delete pod).",
            dead,
        )
    if orphans:
        yield warning(
            f"CDI files whose pages are gone: {some(orphans)}",
            "Harmless: the agent writes them anew before a container starts. Restart it where they stay.",
            orphans,
        )
    if not dead and not orphans:
        yield ok("nothing is left of containers that have ended")
