"""Which nodes and which cards are preferred: words that a GPUPool, a pod's annotations and the extender's flag share.

    aliquot.dev/node-policy: Spread      which of the nodes that have room
    aliquot.dev/card-policy: Binpack     which cards of it

Where a pod is silent its pool speaks, and where that is silent the extender's flag. docs/placement.md tells what
each does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aliquot.api.names import CARD_POLICY_ANNOTATION, NODE_POLICY_ANNOTATION
from aliquot.request.topology import Topology


class Policy(StrEnum):
    """How slices are laid out; equal states give equal answers under each of them."""

    FRAG_AWARE = "FragAware"
    """Where it costs least of what others, judged by those who came before, could have used."""
    BINPACK = "Binpack"
    """The most used that still fits, so that the rest stays free."""
    SPREAD = "Spread"
    """The least used."""


class PolicyError(ValueError):
    """A word that is no policy, and the annotation that has it."""

    def __init__(self, problem: str, annotation: str = "") -> None:
        super().__init__(problem)
        self.annotation = annotation


@dataclass(frozen=True)
class Preference:
    """One policy for nodes, one for cards, and what a pool says of their links; None where nothing is said."""

    node: Policy | None = None
    card: Policy | None = None
    topology: Topology | None = None

    def over(self, other: "Preference") -> "Preference":
        """This one, and the other where this one is silent."""
        return Preference(self.node or other.node, self.card or other.card, self.topology or other.topology)


SILENT: Final = Preference()
DEFAULT: Final = Preference(Policy.FRAG_AWARE, Policy.FRAG_AWARE)


def read_policy(word: str) -> Policy:
    """Read a policy, in any case.

    Raises:
        PolicyError: it is none.
    """
    for policy in Policy:
        if word.lower() == policy.lower():
            return policy
    raise PolicyError(f"{word!r} is none of {', '.join(Policy)}")


def read_preference(annotations: Mapping[str, str]) -> Preference:
    """Read what a pod prefers; it has one node, so the annotations speak for the whole pod.

    Raises:
        PolicyError: a word is no policy.
    """
    return Preference(_read(annotations, NODE_POLICY_ANNOTATION), _read(annotations, CARD_POLICY_ANNOTATION))


def _read(annotations: Mapping[str, str], annotation: str) -> Policy | None:
    word = annotations.get(annotation)
    if word is None:
        return None
    try:
        return read_policy(word)
    except PolicyError as error:
        raise PolicyError(str(error), annotation) from error
