"""The fuzz targets: what was ever found stays mended, and a minute finds nothing new."""

import os
from pathlib import Path

import pytest

from tests.fuzz.fuzzing import TARGETS, build, clang, fuzz, replay
from tests.tools.debian import NotAvailableError

SECONDS = 60


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_breaks_no_promise(tmp_path: Path, target: str):
    """Every input that a fuzzer found worth keeping runs to its end, whatever compiler there is."""
    program = build(target, tmp_path, [os.environ.get("CC", "cc")], fuzzer=False)
    done = replay(target, program, tmp_path)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
@pytest.mark.timeout(20 * SECONDS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_minute_of_fuzzing_finds_nothing(tmp_path: Path, target: str):
    """LibFuzzer with ASan and UBSan, from the corpus on."""
    try:
        compiler, environment = clang()
    except NotAvailableError as missing:
        pytest.skip(f"NOT RUN: {missing}")
    program = build(target, tmp_path, compiler, fuzzer=True, **environment)
    output, _ = fuzz(target, program, tmp_path, SECONDS).communicate(timeout=20 * SECONDS)
    assert "Done " in output, output[-4000:]
