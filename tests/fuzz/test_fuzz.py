"""The fuzz targets: what was ever found stays mended, and a minute of all finds nothing new."""

import os
from pathlib import Path

import pytest

from tests.fuzz.fuzzing import TARGETS, Workshop, clang, fuzz, replay
from tests.tools.debian import NotAvailableError

SECONDS = 20


@pytest.fixture(scope="module")
def replaying(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Programs that replay files, by whatever compiler there is."""
    return Workshop(tmp_path_factory.mktemp("replaying"), [os.environ.get("CC", "cc")], {}, fuzzer=False)


@pytest.fixture(scope="module")
def fuzzing(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """LibFuzzer with ASan and UBSan."""
    try:
        compiler, environment = clang()
    except NotAvailableError as missing:
        pytest.skip(f"NOT RUN: {missing}")
    return Workshop(tmp_path_factory.mktemp("fuzzing"), compiler, environment, fuzzer=True)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_breaks_no_promise(replaying: Workshop, tmp_path: Path, target: str):
    """Every input that a fuzzer found worth keeping runs to its end."""
    done = replay(target, replaying.build(target, tmp_path), tmp_path)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS)
def test_a_third_of_a_minute_of_fuzzing_finds_nothing(fuzzing: Workshop, tmp_path: Path, target: str):
    """From the corpus on."""
    program = fuzzing.build(target, tmp_path)
    output, _ = fuzz(target, program, tmp_path, SECONDS).communicate(timeout=600)
    assert "Done " in output, output[-4000:]
