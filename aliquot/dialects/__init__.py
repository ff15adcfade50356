"""Other projects' resource names, each translated to ours.

A dialect is one small module that knows the resources of one project and what they mean there. It answers in our
resources; the rest of Aliquot never sees theirs. What else a manifest for that project can say is either honoured or
refused, never dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aliquot.api.names import ResourceNames
from aliquot.kube.objects import Pod, ResourceRequirements
from aliquot.units import Quantity


class DialectError(ValueError):
    """A request in another project's terms that cannot be honoured."""

    def __init__(self, resource: str, value: Quantity, problem: str) -> None:
        super().__init__(problem)
        self.resource = resource
        self.value = value


@dataclass(frozen=True)
class Translation:
    """A container's wish in our resources; `exclusive` adds what our resources alone cannot say."""

    limits: Mapping[str, Quantity]
    exclusive: bool = False


class Dialect(Protocol):
    """One project's way of asking for a part of a GPU."""

    @property
    def name(self) -> str:
        """The word the admin switches it on with."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Every resource name it reads: those the scheduler must leave to the extender."""

    @property
    def amounts(self) -> Mapping[str, tuple[str, int]]:
        """Resource → the amount of `aliquot.request.amounts` that a quota of it bounds, and its size for one unit."""

    def check(self, pod: Pod) -> None:
        """Refuse what a pod with a slice says in the project's words beside amounts, where it is not honoured.

        Raises:
            DialectError: it says something of the kind; the message names all of it, with what to write instead.
        """

    def translate(
        self, asked: ResourceRequirements, annotations: Mapping[str, str], names: ResourceNames
    ) -> Translation | None:
        """Say a container's wish in our resources; None when it asks for nothing in this dialect.

        Raises:
            DialectError: the wish makes no sense in its own terms.
        """


def load_dialects(wanted: Sequence[str]) -> tuple[Dialect, ...]:
    """Return the dialects of these names, in this order.

    Raises:
        ValueError: there is no such dialect.
    """
    from aliquot.dialects.hami import HamiDialect

    known: dict[str, type[Dialect]] = {"hami": HamiDialect}
    for name in wanted:
        if name not in known:
            raise ValueError(f"no dialect {name!r}; there are: {', '.join(sorted(known))}")
    return tuple(known[name]() for name in wanted)
