"""How layers of images are kept: each is made once on a machine, whichever checkout wants it."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.cluster.installation import ROOT
from tests.tools.cache import cache_dir

LAYER = "import sys; from tests.cluster.images import python_layer; print(python_layer(sys.argv[1:]))"
RECORD = {
    "one.py": "",
    "one-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: one\nVersion: 1\n",
    "one-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "one-1.dist-info/RECORD": "",
}
"""A wheel of one empty module."""


def layer(python: Path, wheels: Path) -> Path:
    """Where the layer of a package is, by a Python that may have no pip of its own."""
    packages = os.pathsep.join((str(ROOT), sysconfig.get_path("purelib")))
    command = [str(python), "-c", LAYER, "--no-index", f"--find-links={wheels}", "one"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": packages}, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


def test_another_checkout_finds_the_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its Python is another file, and would make the same."""
    monkeypatch.setenv("ALIQUOT_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "one-1-py3-none-any.whl", "w") as archive:
        for name, text in RECORD.items():
            archive.writestr(name, text)
    venv.create(tmp_path / "other")
    made = layer(Path(sys.executable), tmp_path)
    assert layer(tmp_path / "other/bin/python", tmp_path) == made
    assert list(cache_dir("images").glob("python-*.tar")) == [made]
