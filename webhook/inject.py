"""Puts the interceptor first in a container's `LD_PRELOAD`, and keeps what the pod preloads itself."""

from aliquot.api.names import INJECT_ANNOTATION, LIBRARY_PATH
from aliquot.api.preload import VARIABLE, entries, position
from aliquot.kube.objects import Container, EnvVar
from aliquot.webhook.patch import Patch, Path
from aliquot.webhook.refusal import Refusal


def inject(patch: Patch, where: Path, container: Container) -> None:
    """Preload the interceptor into one container.

    Args:
        patch: The pod.
        where: The container's place in it.
        container: The same container, read.

    Raises:
        Refusal: the pod takes its LD_PRELOAD from elsewhere, where nothing can be put before it.
    """
    found = position(container.env)
    if found is None:
        patch.append((*where, "env"), {"name": VARIABLE, "value": LIBRARY_PATH})
        return
    own = container.env[found]
    if own.value_from is not None:
        raise Refusal(
            f"container {container.name!r}: env {VARIABLE} comes from {_source(own)}, so the interceptor "
            f"cannot be put before it; give the value here or annotate the pod with {INJECT_ANNOTATION}: file"
        )
    patch.set((*where, "env", found, "value"), merge(own.value or ""))


def merge(own: str) -> str:
    """The pod's own list with the interceptor in front, once."""
    others = [entry for entry in entries(own) if entry != LIBRARY_PATH]
    return ":".join([LIBRARY_PATH, *others])


def _source(variable: EnvVar) -> str:
    return next(iter(variable.value_from or {}), "elsewhere")
