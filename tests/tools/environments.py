"""Pythons with packages that the tests do not have among their own, made when first wanted and kept in a cache.

The cache is that of tests.tools.cache.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.cache import cache_dir


def python_with(*requirements: str) -> Path:
    """Returns a Python that has the packages. Where they cannot be had the test is skipped, and says so."""
    name = hashlib.sha256(repr((sys.version, requirements)).encode()).hexdigest()[:12]
    environment = cache_dir("pythons") / name
    if not (environment / "whole").exists():
        _make(environment, requirements)
    return environment / "bin" / "python"


def _make(environment: Path, requirements: tuple[str, ...]) -> None:
    """A killed attempt leaves no mark of being whole, and is made anew."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
    pip = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*pip, *requirements], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT RUN: pip cannot install {' '.join(requirements)}: {done.stderr.strip()[-500:]}")
    (environment / "whole").touch()
