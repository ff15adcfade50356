"""A walk-through: a Markdown document whose console blocks are commands with what they print.

In a block marked `console`, a line that begins with `$ ` is a command, continued on the next line after a backslash,
and with `<<WORD` in it up to a line that is this word. The lines below it, up to the next command, are what it prints;
a command without such lines prints what does not matter here. What stands in such a block is run, unless the paragraph
before it says NOT_RUN.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROMPT = "$ "
NOT_RUN = "not run by the tests"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_HERE = re.compile(r"<<(\w+)")


class DocumentError(Exception):
    """A block that cannot be read, or that is missing; the message names file and line."""


@dataclass(frozen=True)
class Step:
    """A command, where it stands, and the lines that it is to print (none: they do not matter)."""

    command: str
    line: int
    expected: tuple[str, ...] = ()
    is_run: bool = True


@dataclass(frozen=True)
class Document:
    """A file and its steps, in their order."""

    path: Path
    steps: tuple[Step, ...]

    @property
    def run(self) -> tuple[Step, ...]:
        """The steps that are run."""
        return tuple(step for step in self.steps if step.is_run)

    @property
    def not_run(self) -> tuple[str, ...]:
        """The commands that a reader is told of and no test runs."""
        return tuple(step.command for step in self.steps if not step.is_run)

    def require(self, *beginnings: str) -> None:
        """Raise DocumentError unless, for each of these, a step that is run begins so, and in this order."""
        commands = iter(self.run)
        for beginning in beginnings:
            if not any(step.command.startswith(beginning) for step in commands):
                raise DocumentError(f"{self.path}: no command that is run begins with {beginning!r} there")


def read_document(path: Path) -> Document:
    """Read a document's steps. Raises DocumentError."""
    text = path.read_text()
    steps = tuple(step for block in _BLOCK.finditer(text) for step in _steps(path, text, block))
    if not steps:
        raise DocumentError(f"{path}: has no console block")
    return Document(path, steps)


def _steps(path: Path, text: str, block: re.Match[str]) -> Iterator[Step]:
    before = text[: block.start()]
    is_run = NOT_RUN not in before.rstrip().rpartition("\n\n")[2]
    number = before.count("\n") + 2
    lines = block[1].splitlines()
    if not lines or not lines[0].startswith(PROMPT):
        raise DocumentError(f"{path}:{number}: a console block begins with a command, after {PROMPT!r}")
    for start, end in _spans(lines):
        command = [lines[start].removeprefix(PROMPT)]
        word = _HERE.search(command[0])
        while start + len(command) < end and (
            command[-1].endswith("\\") or (word and command[-1] != word[1])
        ):
            command.append(lines[start + len(command)])
        expected = lines[start + len(command) : end]
        yield Step("\n".join(command), number + start, tuple(expected), is_run)


def _spans(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Where each command begins, and where the next one does."""
    starts = [at for at, line in enumerate(lines) if line.startswith(PROMPT)]
    yield from zip(starts, [*starts[1:], len(lines)], strict=True)
