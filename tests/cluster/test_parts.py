"""What is marked `cluster` is run in two parts: only one of them waits for the node that there may be but once."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = """
import pytest
pytestmark = pytest.mark.cluster
def test_with_a_node(installed): pass
def test_with_a_control_plane(control_plane): pass
"""


@pytest.mark.parametrize(
    ("part", "test"), [("node", "test_with_a_node"), ("not node", "test_with_a_control_plane")]
)
def test_a_test_is_of_the_part_that_its_fixtures_say(tmp_path: Path, part: str, test: str):
    """So that none is marked by hand, and none forgotten."""
    (tmp_path / "conftest.py").write_text("from tests.cluster.conftest import *\n")
    (tmp_path / "test_it.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    command += ["-c", str(HERE.parents[1] / "pyproject.toml"), "--rootdir", str(tmp_path)]
    told = subprocess.run(
        [*command, "-m", f"cluster and {part}", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert [line.rpartition("::")[2] for line in told.stdout.splitlines() if "::" in line] == [test], told
