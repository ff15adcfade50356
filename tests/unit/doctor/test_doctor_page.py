"""docs/doctor.md tells of the checks that there are, of each once, in their order."""

import re
from pathlib import Path

import pytest

from aliquot.cli.commands.doctor_run import RUN_CHECKS
from aliquot.doctor.all_checks import CLUSTER_CHECKS, NODE_CHECKS

PAGE = Path(__file__).parents[3] / "docs/doctor.md"


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("## A cluster", [check.name for check in CLUSTER_CHECKS]),
        ("## A node", [check.name for check in NODE_CHECKS]),
        ("## A workstation", [check.name for check in RUN_CHECKS]),
    ],
)
def test_each_check_has_a_row(heading: str, names: list[str]):
    """Of what it means, and what to do."""
    section = PAGE.read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \| (.+) \|$", section, re.MULTILINE)
    assert [name for name, _, _ in rows] == names


def test_no_two_checks_share_a_name():
    """They are named in reports and scripts."""
    names = [check.name for check in (*CLUSTER_CHECKS, *NODE_CHECKS)]
    assert len(set(names)) == len(names)
