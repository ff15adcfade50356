"""Where `aliquot run` keeps its files."""

import os
from pathlib import Path

import pytest

from aliquot.cli.runs.machine import runtime_directory


def test_a_relative_runtime_directory_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The XDG specification says so, and a command that changes directory must still find its pages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", ".")
    assert runtime_directory() == Path(f"/dev/shm/aliquot-{os.getuid()}")  # noqa: S108 -- what docs/run.md says
    assert list(tmp_path.iterdir()) == []
