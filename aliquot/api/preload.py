"""Which library the environment of a container's manifest has the dynamic loader load first.

The loader separates the entries of `LD_PRELOAD` by colons or white space. In a container's environment the last
variable of a name is the one that counts.
"""

import re
from collections.abc import Sequence

from aliquot.api.names import LIBRARY_PATH
from aliquot.kube.objects import EnvVar

VARIABLE = "LD_PRELOAD"
_SEPARATORS = re.compile(r"[:\s]+")


def entries(value: str) -> list[str]:
    """The libraries of a variable's value."""
    return [entry for entry in _SEPARATORS.split(value) if entry]


def position(env: Sequence[EnvVar]) -> int | None:
    """Where the variable that counts is; None where there is none."""
    return max((n for n, variable in enumerate(env) if variable.name == VARIABLE), default=None)


def has_interceptor_first(env: Sequence[EnvVar]) -> bool:
    """Whether the interceptor is loaded before anything else, as far as the manifest says it itself."""
    where = position(env)
    return where is not None and entries(env[where].value or "")[:1] == [LIBRARY_PATH]
