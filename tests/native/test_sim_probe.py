"""The probe of a driver's answers, and the transcripts that it is compared by."""

import subprocess
import sys
from pathlib import Path

import pytest

from aliquot.sandbox import probe
from aliquot.sandbox.gpus import SimCard, SimMachine
from tests.native.sims import environment

TRANSCRIPT = Path(__file__).parents[1] / "data" / "probe" / "simulator.jsonl"


def test_the_simulated_driver_answers_as_recorded(tmp_path: Path):
    """The committed transcript is what the simulation answers today: changes are seen in review."""
    machine = SimMachine(tmp_path / "probed", [SimCard(memory_mib=143771, reserved_mib=609)])
    machine.create()
    today = probe.run(environment(machine))
    assert probe.compare(TRANSCRIPT.read_text(), today) == []


def test_differences_name_the_probe_and_both_answers():
    """What only one driver was asked is a difference too; that cards differ is no fault."""
    left = (
        '{"probe": "a", "result": 0}\n{"probe": "b", "result": "x"}\n{"probe": "card.total", "result": 1}\n'
    )
    right = (
        '{"probe": "a", "result": 2}\n{"probe": "b", "result": "x"}\n{"probe": "card.total", "result": 2}\n'
    )
    differences = probe.compare(left, right + '{"probe": "c", "result": 7}\n')
    assert [(d.probe, d.left, d.right, d.is_card) for d in differences] == [
        ("a", 0, 2, False),
        ("card.total", 1, 2, True),
        ("c", None, 7, False),
    ]


def test_a_line_that_is_no_answer_is_named():
    """A transcript cut short says where."""
    with pytest.raises(probe.ProbeError, match="line 2 is no answer"):
        probe.read('{"probe": "a", "result": 0}\n{"probe": "b", "res')


@pytest.mark.parametrize(
    ("change", "status"), [("", 0), ('{"probe": "start.cuInit", "result": 3}\n', 1), ("?", 2)]
)
def test_the_command_line_tells_by_its_exit_status(tmp_path: Path, change: str, status: int):
    """0: the drivers answer alike; 1: they do not; 2: a file cannot be read."""
    other = tmp_path / "other.jsonl"
    other.write_text(TRANSCRIPT.read_text() + change)
    done = subprocess.run(
        [sys.executable, "-m", "aliquot.sandbox.probe", "compare", TRANSCRIPT, other],
        capture_output=True, text=True, check=False, cwd=TRANSCRIPT.parents[3],
    )  # fmt: skip
    assert done.returncode == status, done.stderr
