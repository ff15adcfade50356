"""Which cards a container may have: by model and by UUID, said in annotations.

    aliquot.dev/card-model: NVIDIA H200, NVIDIA H100 80GB HBM3     one of these
    aliquot.dev/not-card-model: Tesla T4                           none of these
    aliquot.dev/card-uuid: GPU-5a1d…, GPU-77c2…                    one of these very cards
    aliquot.dev/not-card-uuid: GPU-0c9e…                           not these

For all containers, or with a container's name before the annotation for that one. Models are written as NVML writes
them; capital letters and a leading "NVIDIA " make no difference.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aliquot.api.annotations import written_for
from aliquot.api.names import (
    CARD_MODEL_ANNOTATION,
    CARD_UUID_ANNOTATION,
    NOT_CARD_MODEL_ANNOTATION,
    NOT_CARD_UUID_ANNOTATION,
)

MOST_NAMES: Final = 64
"""Names in one annotation."""


class CardFilterError(ValueError):
    """An annotation that names no card; says which, its value and the remedy."""

    def __init__(self, annotation: str, value: str, problem: str) -> None:
        super().__init__(problem)
        self.annotation = annotation
        self.value = value


@dataclass(frozen=True)
class CardFilter:
    """Which cards are allowed; empty sets allow all, and models are kept as `plain_model` has them."""

    models: frozenset[str] = frozenset()
    not_models: frozenset[str] = frozenset()
    uuids: frozenset[str] = frozenset()
    not_uuids: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Whether anything is asked for."""
        return bool(self.models or self.not_models or self.uuids or self.not_uuids)

    def allows_model(self, model: str) -> bool:
        """Whether cards of this model are allowed."""
        if not (self.models or self.not_models):
            return True
        plain = plain_model(model)
        return (not self.models or plain in self.models) and plain not in self.not_models

    def allows_uuid(self, uuid: str) -> bool:
        """Whether a card of this name is allowed."""
        return (not self.uuids or uuid in self.uuids) and uuid not in self.not_uuids

    def allows(self, model: str, uuid: str) -> bool:
        """Whether this very card is allowed."""
        return self.allows_uuid(uuid) and self.allows_model(model)


ANY_CARD: Final = CardFilter()


def plain_model(model: str) -> str:
    """A model's name as it is compared."""
    return model.strip().lower().removeprefix("nvidia ").strip()


def read_card_filter(annotations: Mapping[str, str], container: str) -> CardFilter:
    """Read which cards a pod's annotations allow one of its containers.

    Raises:
        CardFilterError: an annotation names nothing, or too much.
    """
    found = CardFilter(
        frozenset(map(plain_model, _names(annotations, CARD_MODEL_ANNOTATION, container))),
        frozenset(map(plain_model, _names(annotations, NOT_CARD_MODEL_ANNOTATION, container))),
        frozenset(_names(annotations, CARD_UUID_ANNOTATION, container)),
        frozenset(_names(annotations, NOT_CARD_UUID_ANNOTATION, container)),
    )
    return found or ANY_CARD


def _names(annotations: Mapping[str, str], annotation: str, container: str) -> list[str]:
    written = written_for(annotations, annotation, container)
    if written is None:
        return []
    names = [name.strip() for name in written[1].split(",")]
    if not all(names):
        raise CardFilterError(*written, "a name is empty; write them with a comma between each two")
    if len(names) > MOST_NAMES:
        raise CardFilterError(*written, f"{len(names)} names; give at most {MOST_NAMES}")
    return names
