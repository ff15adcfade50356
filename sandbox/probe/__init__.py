"""What a CUDA driver answers: a C program asks it, and two transcripts can be held against each other.

    python -m aliquot.sandbox.probe run > transcript.jsonl          # the driver that this machine has
    python -m aliquot.sandbox.probe compare simulator.jsonl gpu.jsonl

The probe shares nothing with the simulated driver, whose mistakes it is to find.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent
CARD = "card."
"""Probes of this prefix describe the card, and differ between cards by right."""

Answer = int | str


class ProbeError(Exception):
    """The probe cannot be built or run, or a transcript cannot be read; the message says which and why."""


@dataclass(frozen=True)
class Difference:
    """A question that two drivers answer differently. None: not asked there."""

    probe: str
    left: Answer | None
    right: Answer | None

    @property
    def is_card(self) -> bool:
        """True when it is the card that differs, not the driver."""
        return self.probe.startswith(CARD)


def build(directory: Path) -> Path:
    """Compiles the probe into a directory; needs a C compiler. Raises ProbeError with the compiler's words."""
    target = directory / "probe"
    sources = sorted(map(str, SOURCES.glob("*.c")))
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", str(target), *sources, "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProbeError(f"cannot build the probe: {done.stderr.strip()}")
    return target


def run(env: Mapping[str, str] | None = None, timeout: float = 60) -> str:
    """Asks the driver that the dynamic linker finds in an environment (default: ours); returns the transcript."""
    with tempfile.TemporaryDirectory() as directory:
        probe = build(Path(directory))
        done = subprocess.run(
            [str(probe)], env=env or os.environ, capture_output=True, text=True, timeout=timeout, check=False
        )
    if done.returncode != 0 or not done.stdout:
        raise ProbeError(f"the probe ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def read(transcript: str) -> dict[str, Answer]:
    """Probe -> answer, in the order asked. Raises ProbeError naming the line that is none."""
    answers: dict[str, Answer] = {}
    for number, line in enumerate(transcript.splitlines(), 1):
        try:
            entry = json.loads(line)
            answers[entry["probe"]] = entry["result"]
        except (ValueError, KeyError, TypeError) as error:
            raise ProbeError(f"line {number} is no answer of a probe: {line!r}") from error
    return answers


def compare(left: str, right: str) -> list[Difference]:
    """Where two transcripts differ, in the order of the first; what only the second has comes last."""
    first, second = read(left), read(right)
    return [
        Difference(probe, first.get(probe), second.get(probe))
        for probe in dict.fromkeys([*first, *second])
        if first.get(probe) != second.get(probe)
    ]
