"""What looks wrong in a pod but does not stop it; kubectl shows these lines to the pod's author."""

from collections.abc import Iterator, Sequence

from aliquot.dialects import Dialect
from aliquot.kube.objects import Container, Pod
from aliquot.names import CONTROL_ENV, GRANTS, SCHEDULER_NAME, USAGE_ENV

DEFAULT_SCHEDULER = "default-scheduler"

_OVERRULED = {
    "NVIDIA_VISIBLE_DEVICES": "is overruled: the cards are those of the slice",
    "CUDA_DISABLE_CONTROL": "has no effect: limits do not come from the environment",
    "CUDA_DEVICE_MEMORY_LIMIT": "has no effect: the limit is the container's request",
    "CUDA_DEVICE_SM_LIMIT": "has no effect: the limit is the container's request",
    CONTROL_ENV: "is overruled by the node",
    USAGE_ENV: "is overruled by the node",
}


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


def about_dialects(pod: Pod, dialects: Sequence[Dialect]) -> Iterator[str]:
    """Annotations of another project that choose cards there, and not here."""
    for dialect in dialects:
        for annotation, ours in dialect.unread.items():
            if annotation in pod.metadata.annotations:
                yield f"annotation {annotation} is not read; write {ours}"


def about_container(container: Container) -> Iterator[str]:
    """What a container with a slice says that will not come true."""
    for variable in container.env:
        if variable.name in _OVERRULED:
            yield f"container {container.name!r}: env {variable.name} {_OVERRULED[variable.name]}"
    if container.security_context and container.security_context.privileged:
        yield f"container {container.name!r}: privileged, so it can reach every card of the node"
