"""What a kill can leave of a call that writes files: every state that they are in between two of its lines.

A killed process has written what it has written, so one run that is looked at before each line stands for a kill at
every one of them.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

Files = tuple[tuple[str, bytes], ...]
"""Paths below a directory, and contents."""


def files_of(root: Path) -> Files:
    """All files below a directory, as a reader of this moment finds them."""
    found = sorted(path for path in root.rglob("*") if path.is_file())
    return tuple((str(path.relative_to(root)), path.read_bytes()) for path in found)


def states_during(call: Callable[[], object], root: Path) -> list[Files]:
    """Calls; returns each state, once, that the files were in before any line that came to run, in any thread."""
    seen = {files_of(root): None}

    def trace(_frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "line":
            seen.setdefault(files_of(root))
        return trace

    before, before_in_threads = sys.gettrace(), threading.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        threading.settrace(before_in_threads)  # type: ignore[arg-type]  # None is what it was
    return list(seen)


def restored(files: Files, root: Path) -> Path:
    """The directory with those files."""
    for name, content in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root
