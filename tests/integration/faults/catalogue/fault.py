"""One fault: what is broken on purpose, what must hold all the same, and the tests that show it."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[4]


@dataclass(frozen=True)
class Fault:
    """A row of the table.

    Attributes:
        id: `F01` …; never used again for another fault.
        injected: what is done to the system.
        holds: what must be true then and afterwards, beside what the auditor asserts after each step.
        proven: the tests that show it, as pytest names them: `tests/…/test_x.py::test_y`, without parameters.
    """

    id: str
    injected: str
    holds: str
    proven: tuple[str, ...]


def exists(node_id: str) -> bool:
    """Whether there is a test function of this name in this file."""
    path, _, name = node_id.partition("::")
    return name.startswith("test_") and name in _functions(path)


@cache
def _functions(path: str) -> frozenset[str]:
    """The functions at the top of a file of tests; none where there is no such file."""
    file = REPOSITORY / path
    if not file.is_file():
        return frozenset()
    body = ast.parse(file.read_text()).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef))
