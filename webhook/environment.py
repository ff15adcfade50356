"""Refuses environment variables by which a pod with a slice would set its own limits.

The limits of a slice are those of the container's request, whatever its environment says. The admission policy
`aliquot-slices` refuses the same variables of the same pods, where it is on; neither lets pass what the other refuses.
"""

from itertools import chain
from typing import Final

from aliquot.kube.objects import Pod
from aliquot.webhook.refusal import Refusal

_SWITCH_OFF: Final = "CUDA_DISABLE_CONTROL"


def sets_limits(variable: str) -> bool:
    """Whether a variable of this name sets limits, or switches them off, for HAMi-core or for MPS."""
    return variable == _SWITCH_OFF or (variable.startswith("CUDA_") and "LIMIT" in variable)


def check_environment(pod: Pod) -> None:
    """Refuse a pod with a slice whose containers set limits of their own.

    Raises:
        Refusal: one does.
    """
    for container in chain(pod.spec.init_containers, pod.spec.containers):
        named = next((variable.name for variable in container.env if sets_limits(variable.name)), None)
        if named:
            raise Refusal(
                f"container {container.name!r}: env {named}: limits do not come from the environment; "
                "leave it out and ask in resources.limits"
            )
