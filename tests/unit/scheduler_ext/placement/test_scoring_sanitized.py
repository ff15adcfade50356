"""The scoring of nodes, instrumented: the tests that lay out random pods on random nodes, once more."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from aliquot.scheduler_ext.scoring import _scoring_build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[4]
TESTS = [
    f"tests/unit/scheduler_ext/{name}.py"
    for name in (
        "cards/test_topology",
        "kube_scheduler/test_node_names",
        "placement/test_model_updates",
        "placement/test_placer",
        "placement/test_residual_value",
        "placement/test_scoring",
    )
]
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS = ("-std=c11", "-O1", "-g", "-fPIC", "-shared", "-ffp-contract=off", *SANITIZERS)
RUN = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("aliquot.scheduler_ext.scoring._scoring", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
import pytest
from aliquot.scheduler_ext import scoring
assert scoring.lib is module.lib
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def instrumented(directory: Path) -> Path:
    """The module, built with sanitizers."""
    source, library = directory / "_scoring.c", directory / "_scoring.so"
    _scoring_build.ffibuilder.emit_c_code(str(source))
    own = sorted(_scoring_build.SOURCES.glob("*.c"))
    include = [f"-I{_scoring_build.SOURCES}", f"-I{sysconfig.get_path('include')}"]
    subprocess.run(["cc", *FLAGS, *include, "-o", library, source, *own, "-lm"], check=True)
    return library


def test_no_bad_access_and_no_undefined_behaviour(tmp_path: Path):
    """Whatever the cards, links, containers, policies and typical pods, and however the cluster grows."""
    told = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": str(Path(told.stdout.strip()).resolve()),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # so that each block has its guards
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", RUN, instrumented(tmp_path), *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert " passed" in done.stdout
