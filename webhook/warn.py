"""What looks wrong in a pod but does not stop it; kubectl shows these lines to the pod's author."""

from collections.abc import Collection, Iterator

from aliquot.api.names import CONTROL_ENV, DEFAULT_SCHEDULER, GRANTS, SCHEDULER_NAME, USAGE_ENV
from aliquot.kube.objects import Container, Pod

_POLICY = "leave it out: the admission policy aliquot-slices refuses it where it is on"
_OVERRULED = {
    "NVIDIA_VISIBLE_DEVICES": f"is overruled, the cards are those of the slice; {_POLICY}",
    CONTROL_ENV: f"is overruled by the node; {_POLICY}",
    USAGE_ENV: f"is overruled by the node; {_POLICY}",
}
_NO_CARD = ("NVIDIA_VISIBLE_DEVICES", "void")


def about_scheduler(pod: Pod) -> Iterator[str]:
    """A scheduler of the pod's own choice, which may not know the cards."""
    name = pod.spec.scheduler_name
    if name not in ("", DEFAULT_SCHEDULER, SCHEDULER_NAME):
        yield (
            f"schedulerName {name!r} is kept; without Aliquot's extender in it this pod gets no card, "
            f"with {SCHEDULER_NAME!r} it would"
        )


def about_grants(pod: Pod) -> Iterator[str]:
    """What a new pod says in the scheduler's place."""
    for grant in GRANTS:
        if grant in pod.metadata.annotations:
            yield f"annotation {grant} is removed: only the scheduler writes it"


def about_kept(grant: str) -> str:
    """An edit of what the scheduler has written."""
    return f"annotation {grant} stays as it was: only the scheduler writes it"


def about_restarts(pod: Pod, slices: Collection[str]) -> Iterator[str]:
    """An init container with a slice: once it has ended, a restart of the kubelet may end the whole pod.

    Args:
        pod: The pod.
        slices: The names of its containers that have a slice.
    """
    for container in pod.spec.init_containers:
        if container.name in slices and container.restart_policy != "Always":
            yield (
                f"init container {container.name!r} has a slice: a kubelet that restarts while the node agent is away "
                "fails the running pod; ask in containers or sidecars alone, or have a controller make the pod anew"
            )


def about_container(container: Container) -> Iterator[str]:
    """What a container with a slice says that will not come true."""
    for variable in container.env:
        if variable.name in _OVERRULED and (variable.name, variable.value) != _NO_CARD:
            yield f"container {container.name!r}: env {variable.name} {_OVERRULED[variable.name]}"
    if container.security_context and container.security_context.privileged:
        yield f"container {container.name!r}: privileged, so it can reach every card of the node; {_POLICY}"
