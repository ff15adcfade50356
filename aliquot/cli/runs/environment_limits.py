"""Limits that the environment asks for by HAMi-core's names, for `aliquot run`, whose command has one card.

The library reads the same variables where it is used alone, and ends the program for what cannot be kept
(libshim/src/hami_env.c). Here the command is not started then.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import click

from aliquot.cli.display.amounts import WHOLE, MemoryAmount

MEMORY = "CUDA_DEVICE_MEMORY_LIMIT"
CORE = "CUDA_DEVICE_SM_LIMIT"
POLICY = "GPU_CORE_UTILIZATION_POLICY"
_NONE = "0"
_SIZE = re.compile(r"(?P<number>[0-9]+)(?P<unit>[kKmMgG]?)", re.ASCII)
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30}


@dataclass(frozen=True)
class EnvironmentLimits:
    """What the environment asks for; None: nothing."""

    memory: MemoryAmount | None = None
    core_percent: int | None = None


def environment_limits(environment: Mapping[str, str]) -> EnvironmentLimits:
    """Reads the variables. Raises UsageError for a value that cannot be read: it must not become no limit."""
    memory, core = _value(environment, MEMORY), _value(environment, CORE)
    size = _size(*memory) if memory else 0
    percent = _percent(*core) if core else 0
    if environment.get(POLICY, "").lower() == "disable" or percent == WHOLE:
        percent = 0
    return EnvironmentLimits(MemoryAmount(size) if size else None, percent or None)


def reconciled(
    limits: EnvironmentLimits, memory: MemoryAmount | None, core_percent: int | None
) -> EnvironmentLimits:
    """The limits of the environment with those of the command line. Raises UsageError where they differ."""
    if limits.memory and memory and limits.memory != memory:
        raise click.UsageError(
            f"{MEMORY} asks for {limits.memory} and --mem for {memory}; unset it, or leave --mem out"
        )
    if limits.core_percent and core_percent and limits.core_percent != core_percent:
        raise click.UsageError(
            f"{CORE} asks for {limits.core_percent} % and --core for {core_percent} %; unset it, or leave --core out"
        )
    return EnvironmentLimits(memory or limits.memory, core_percent or limits.core_percent)


def _value(environment: Mapping[str, str], name: str) -> tuple[str, str] | None:
    """The variable that holds for a command's only card, CUDA device 0, and its value.

    Raises UsageError where there is a limit, but only for cards that the command does not have.
    """
    for variable in (f"{name}_0", name):
        if environment.get(variable, _NONE) != _NONE:
            return variable, environment[variable]
    for variable, text in environment.items():
        if variable.startswith(name) and text != _NONE:
            raise click.UsageError(
                f"{variable} names no card of the command, which has one, CUDA device 0; write {name}"
            )
    return None


def _size(name: str, text: str) -> int:
    match = _SIZE.fullmatch(text)
    if not match:
        raise click.UsageError(
            f"{name}={text} is no size; write bytes or a number with k, m or g, such as 2g, or 0 for no limit"
        )
    return int(match["number"]) << _SHIFT[match["unit"].lower()]


def _percent(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= WHOLE):
        raise click.UsageError(f"{name}={text} is no percentage; write 1 to 100, or 0 for no cap")
    return int(text)
