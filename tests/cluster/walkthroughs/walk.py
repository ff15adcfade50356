"""Runs a document's commands in a shell, one after the other, and compares what they print.

Commands that only look are repeated until they print what is expected, as a reader would look again; all others are run
once and have to succeed, or, where the document shows an error, to fail.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Self

from tests.cluster.walkthroughs.document import Document, Step
from tests.cluster.walkthroughs.output import difference, matches

COMMAND_S = 300.0
PATIENCE_S = 180.0
LOOK_EVERY_S = 0.2
LOOKS = re.compile(r"^(kubectl( -n \S+)? (get|logs|exec)|aliquot|curl) ")
FAILS = re.compile(r"^(error|Error)\b")
_END = "--- end of a command:"


class WalkError(AssertionError):
    """A step that went otherwise than its document says; the message has place, command and difference."""


@dataclass(frozen=True)
class Outcome:
    """What a command printed, errors among it, and its exit status."""

    printed: str
    status: int


class Shell:
    """One bash for a whole walk, so that a variable or a background job is there for the next command."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, 9)
        self._process.communicate()

    def run(self, command: str, deadline_s: float = COMMAND_S) -> Outcome:
        """Run one command. Raises WalkError where it does not end."""
        assert self._process.stdin
        assert self._process.stdout
        lines = list[str]()
        reader = Thread(target=self._read, args=(lines,), daemon=True)
        reader.start()
        self._process.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s %d\\n' '{_END}' $?\n")
        self._process.stdin.flush()
        reader.join(deadline_s)
        if reader.is_alive() or not lines or not lines[-1].startswith(_END):
            raise WalkError(f"{command}\ndid not end within {deadline_s:.0f} s\n{''.join(lines)}")
        return Outcome("".join(lines[:-1]), int(lines[-1].rpartition(" ")[2]))

    def _read(self, lines: list[str]) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            lines.append(line)
            if line.startswith(_END):
                return


@dataclass
class Walk:
    """A document's way through a cluster; `told` is everything that its commands have printed."""

    document: Document
    shell: Shell
    names: Mapping[str, str] = field(default_factory=dict)
    """What the document calls what here has another name."""
    patience_s: float = PATIENCE_S
    told: list[str] = field(default_factory=list)

    def run(self, before: Callable[[Step], None] = lambda _: None) -> None:
        """Run all steps, each after `before`. Raises WalkError at the first that differs."""
        for step in self.document.run:
            before(step)
            self.take(step)

    def take(self, step: Step) -> None:
        """Run one step, again and again where it only looks. Raises WalkError."""
        deadline = time.monotonic() + (self.patience_s if LOOKS.match(step.command) else 0)
        while True:
            outcome = self.shell.run(self._here(step.command))
            printed = self._there(outcome.printed)
            if not (wrong := _judge(step, Outcome(printed, outcome.status))):
                self.told.append(printed)
                return
            if time.monotonic() >= deadline:
                raise WalkError(f"{self.document.path}:{step.line}: {step.command}\n{wrong}")
            time.sleep(LOOK_EVERY_S)

    def _here(self, text: str) -> str:
        for theirs, ours in self.names.items():
            text = text.replace(theirs, ours)
        return text

    def _there(self, text: str) -> str:
        for theirs, ours in self.names.items():
            text = text.replace(ours, theirs)
        return text


def _judge(step: Step, outcome: Outcome) -> str:
    """What is wrong with a command's outcome; empty where nothing is."""
    shall_fail = bool(step.expected and FAILS.match(step.expected[0]))
    if shall_fail != bool(outcome.status):
        return f"ended with status {outcome.status}:\n{outcome.printed}"
    if step.expected and not matches(step.expected, outcome.printed):
        return difference(step.expected, outcome.printed)
    return ""
