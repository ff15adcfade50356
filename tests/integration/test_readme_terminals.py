"""The README's terminals: what it says is typed there, word for word, and shows what it says."""

import re
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.shells import Shell
from tests.integration.terminals import CTRL_C, terminal

ROOT = Path(__file__).parents[2]
ID_OF_README = "kx7f"
ORDINALS = ("first", "second", "third")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("bash"), reason="NOT RUN: no bash here"),
]


def story() -> list[tuple[int, str, list[str]]]:
    """Number of the terminal, line to type, and lines that it prints, in order."""
    readme = (ROOT / "README.md").read_text()
    block = readme.partition("In three terminals")[2].partition("```console\n")[2].partition("```")[0]
    assert "`. .venv/bin/activate`" in readme
    told: list[tuple[int, str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            (ordinal,) = re.findall(rf"# the ({'|'.join(ORDINALS)})\b", line)
            told.append((ORDINALS.index(ordinal), line[2:], []))
        else:
            told[-1][2].append(line)
    return told


def test_three_terminals(shell: Shell):
    """A run, `top` that shows it under its id, and `resize` by that id; the run goes on, with what it has now."""
    with ExitStack() as stack:
        screens = [stack.enter_context(terminal(shell.environment, ROOT)) for _ in ORDINALS]
        for screen in screens:
            screen.type(f". {sys.prefix}/bin/activate\n")
        (run_in, run, _), (top_in, top, _), (resize_in, resize, answer), (list_in, cards, _) = story()
        assert (run_in, top_in, resize_in, list_in) == (0, 1, 2, 2)

        screens[0].type(f"{run}\n")
        name = screens[0].wait_for(r"aliquot: run (\w+): card 0 .*6Gi of memory, 30 % of its time")[1]
        screens[0].wait_for(r"kernels of 10 ms: \d+ % of the card's time")

        screens[1].type(f"{top}\n")
        row = rf"{name}\s+\d+\s+python examples/run/loop.py\s+512Mi of "
        screens[1].wait_for(rf"{row}6Gi\s+capped\s+30.0 %")

        screens[2].type(f"{resize.replace(ID_OF_README, name)}\n")
        for line in answer:
            screens[2].wait_for(re.escape(line.replace(ID_OF_README, name)))
        screens[1].wait_for(rf"{row}7Gi\s+capped\s+20.0 %")
        screens[0].wait_for(r"kernels of 10 ms: \d+ % of the card's time")

        screens[2].type(f"{cards}\n")
        screens[2].wait_for(rf"{name}\s+\d+\s+7Gi\s+512Mi\s+20 %\s+python examples/run/loop.py")
        for screen in screens[:2]:
            screen.type(CTRL_C)
            screen.type("echo status $?\n")
            screen.wait_for(r"status 0\s")
        assert shell.promised() == [0, 0]
