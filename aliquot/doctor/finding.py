"""What a check has found."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

MOST_SHOWN: Final = 4
UPGRADE: Final = "{helm upgrade}"
"""What mends most of what the chart has made and somebody has changed; `with_helm_command` writes it out."""


class Result(StrEnum):
    """How bad it is, the worst first."""

    FAILURE = "failure"
    WARNING = "warning"
    NOT_CHECKED = "not checked"
    OK = "ok"


class Told(msgspec.Struct, frozen=True):
    """What a check has to say: what was seen, what is to be done, and the names of all objects it is about."""

    result: Result
    seen: str
    remedy: str = ""
    objects: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """The same with the name and the group of its check: what `--json` prints."""

    check: str
    group: str
    result: Result
    seen: str
    remedy: str = ""
    objects: tuple[str, ...] = ()


def ok(seen: str) -> Told:
    """All is well."""
    return Told(Result.OK, seen)


def warning(seen: str, remedy: str, objects: Iterable[str] = ()) -> Told:
    """It works, but not as it should, or not for long."""
    return Told(Result.WARNING, seen, remedy, tuple(objects))


def failure(seen: str, remedy: str, objects: Iterable[str] = ()) -> Told:
    """Something does not work, or somebody gets what is not his."""
    return Told(Result.FAILURE, seen, remedy, tuple(objects))


def not_checked(why: str, remedy: str = "") -> Told:
    """It could not be looked at."""
    return Told(Result.NOT_CHECKED, why, remedy)


def some(names: Iterable[str]) -> str:
    """The first of these names, and how many more there are."""
    every = sorted(set(names))
    shown = ", ".join(every[:MOST_SHOWN])
    more = len(every) - MOST_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def count(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def with_helm_command(findings: Iterable[Finding], command: str) -> tuple[Finding, ...]:
    """The same, with Helm's command for this cluster in their remedies, to be typed as they stand."""
    return tuple(
        msgspec.structs.replace(one, remedy=one.remedy.replace(UPGRADE, command)) for one in findings
    )
