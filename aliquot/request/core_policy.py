"""How a container's part of a card's time is held: what its pod asks by annotation, and what its pool makes of it.

    aliquot.dev/core-mode: burst       capped | burst | uncapped
    aliquot.dev/core-limit: "60"       the most it may burst to, in percent
    aliquot.dev/priority: "5"          0 to 9; the higher is let in first

What a pod asks travels in its placement. The pool, which may change at any time, speaks where the pod is silent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aliquot.api.annotations import written_for
from aliquot.api.names import CORE_LIMIT_ANNOTATION, CORE_MODE_ANNOTATION, PRIORITY_ANNOTATION
from aliquot.units import QuantityError, parse_percent

WHOLE: Final = 100
HIGHEST_PRIORITY: Final = 9


class CoreMode(StrEnum):
    """Never more than the share; the share and what others leave; no share, but an equal part of what shares leave."""

    CAPPED = "capped"
    BURST = "burst"
    UNCAPPED = "uncapped"


class CorePolicyError(ValueError):
    """An annotation that cannot be honoured; names it, its value and the remedy."""

    def __init__(self, annotation: str, value: str, problem: str) -> None:
        super().__init__(problem)
        self.annotation = annotation
        self.value = value


@dataclass(frozen=True)
class CorePolicy:
    """What a container asks; None: as its pool says."""

    mode: CoreMode | None = None
    limit_percent: int | None = None
    priority: int | None = None


NO_POLICY: Final = CorePolicy()


@dataclass(frozen=True)
class CoreTerms:
    """What holds for a container: `most_percent` is what it may have of a card's time when others leave it theirs."""

    mode: CoreMode
    most_percent: int
    priority: int


@dataclass(frozen=True)
class CoreRules:
    """What holds for those who do not say, and the bounds of what may be asked: a pool's, or nobody's in particular."""

    mode: CoreMode = CoreMode.CAPPED
    limit_percent: int = WHOLE
    priority: int = 0
    max_priority: int = HIGHEST_PRIORITY

    def terms_for(self, asked: CorePolicy, cores: int) -> CoreTerms:
        """What holds for a container that has this guaranteed percentage (0: none) of a card's time.

        The percentage is what it has now: a resize may have given a share, or taken it.
        """
        priority = self.priority if asked.priority is None else asked.priority
        mode, most = self._mode_for(asked, cores), WHOLE
        if mode is CoreMode.CAPPED:
            most = cores
        elif mode is CoreMode.BURST:
            most = max(cores, min(asked.limit_percent or WHOLE, self.limit_percent))
        return CoreTerms(mode, most, min(priority, self.max_priority))

    def _mode_for(self, asked: CorePolicy, cores: int) -> CoreMode:
        if not cores:
            return CoreMode.UNCAPPED
        if asked.mode in {CoreMode.CAPPED, CoreMode.BURST}:
            return CoreMode(asked.mode)
        return CoreMode.BURST if asked.limit_percent else self.mode


def read_core_policy(
    annotations: Mapping[str, str], container: str, cores: int, *, exclusive: bool
) -> CorePolicy:
    """Read what a pod's annotations ask for one of its containers.

    Args:
        annotations: The pod's.
        container: The container's name.
        cores: Its guaranteed percentage of each card's time; 0: none.
        exclusive: Whether it holds its cards alone.

    Raises:
        CorePolicyError: an annotation makes no sense, alone or with the others and the request.
    """
    mode = _mode(written_for(annotations, CORE_MODE_ANNOTATION, container), cores, exclusive=exclusive)
    limit = written_for(annotations, CORE_LIMIT_ANNOTATION, container)
    return CorePolicy(
        mode,
        _limit(limit, mode, cores, exclusive=exclusive),
        _priority(written_for(annotations, PRIORITY_ANNOTATION, container)),
    )


def _mode(written: tuple[str, str] | None, cores: int, *, exclusive: bool) -> CoreMode | None:
    if written is None:
        return None
    if written[1] not in list(CoreMode):
        raise CorePolicyError(*written, f"{written[1]!r} is none of {', '.join(CoreMode)}")
    mode = CoreMode(written[1])
    if exclusive:
        raise CorePolicyError(*written, "a card of one's own has nobody to share its time with; leave it out")
    problem = problem_of_mode(mode, cores)
    if problem:
        raise CorePolicyError(*written, problem)
    return mode


def problem_of_mode(mode: CoreMode, cores: int, asked_by: str = "gpu-core") -> str:
    """Why a mode makes no sense with this share of a card's time, which is asked for by that name; empty: it does."""
    if mode is CoreMode.UNCAPPED and cores:
        return f"uncapped goes without a share, but {cores} % is asked for; leave one of the two out"
    if mode is not CoreMode.UNCAPPED and not cores:
        return f"{mode} needs a share of the card's time; ask for {asked_by} too"
    return ""


def _limit(
    written: tuple[str, str] | None, mode: CoreMode | None, cores: int, *, exclusive: bool
) -> int | None:
    if written is None:
        return None
    try:
        limit = parse_percent(written[1])
    except QuantityError as error:
        raise CorePolicyError(*written, str(error)) from error
    problem = problem_of_limit(limit, mode, 0 if exclusive else cores)
    if problem:
        raise CorePolicyError(*written, problem)
    return limit


def problem_of_limit(limit: int, mode: CoreMode | None, cores: int, asked_by: str = "gpu-core") -> str:
    """The same of the most that what has a share may burst to."""
    if not cores:
        return f"it bounds what goes beyond a share, and none is asked for by {asked_by}"
    if mode is CoreMode.CAPPED:
        return "what is capped never has more than its share; leave one of the two out"
    if limit <= cores:
        return f"{limit} is no more than the share, {cores}; write more, or leave it out"
    return ""


def _priority(written: tuple[str, str] | None) -> int | None:
    if written is None:
        return None
    if written[1] not in map(str, range(HIGHEST_PRIORITY + 1)):
        raise CorePolicyError(*written, f"{written[1]!r} is no priority; write 0 to {HIGHEST_PRIORITY}")
    return int(written[1])
