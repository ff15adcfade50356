"""Stacks that live as long as a test needs them."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aliquot.cli.demo.stack import Stack
from aliquot.sandbox.gpus import SimCard


@contextmanager
def one_node(cards: Sequence[SimCard], agent_flags: Sequence[str] = ()) -> Iterator[Stack]:
    """A stack, not started, of a node with these cards. Its path is short: sockets live below it."""
    root = Path(tempfile.mkdtemp(prefix="aq-"))
    try:
        with Stack(root, {"node-1": cards}, agent_flags) as stack:
            yield stack
    finally:
        shutil.rmtree(root, ignore_errors=True)
