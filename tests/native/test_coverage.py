"""The coverage report says of each hook which tests enter it, and of each function of CUDA whether it has a row."""

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.libshim.coverage import report
from aliquot.libshim.coverage.bindings import Bindings, plain, read_installed
from aliquot.libshim.coverage.harmless import REASONS
from aliquot.libshim.coverage.new_cuda import findings, matters
from aliquot.libshim.coverage.table import Row, read_table
from tests.native import tracing
from tests.native.shells import LIBSHIM, Shell
from tests.native.tenants import Tenant


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """The hook table."""
    return read_table()


@pytest.mark.slow
def test_the_tracing_flavour_notes_each_hook_that_a_program_enters_once(
    tenant: Callable[..., Tenant], tmp_path: Path
):
    """What one hook needs of another is no entry."""
    notes = tmp_path / "notes"
    with Shell(tenant(64 << 20), LD_PRELOAD=str(tracing.build()), ALIQUOT_TRACE=str(notes)).begin() as shell:
        for _ in range(2):
            shell.ok("cuMemFree_v2", shell.ok("cuMemAlloc_v2", "&", 4096))
    names = ["cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemFree_v2"]
    assert notes.read_text().splitlines() == names


def test_the_report_names_hooks_that_no_test_enters(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """It prints each entry with its versions, duty and tests; one hook without a test is a failure."""
    hooks = [row.symbol for row in rows if row.hooked]
    traces = tmp_path / "tests.json"
    monkeypatch.setattr("sys.argv", ["report", str(traces)])
    traces.write_text(json.dumps({"tests/native/test_all.py::test_all": hooks}))
    assert report.main() == 0
    printed = capsys.readouterr().out.splitlines()
    assert "cuMemFree | cuMemFree (2000), cuMemFree_v2 (3020) | give back | test_all.py::test_all" in printed
    traces.write_text(json.dumps({"tests/native/test_all.py::test_all": hooks[1:]}))
    assert report.main() == 1
    assert f"NONE for {hooks[0]}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_hook_is_entered_by_a_test(rows: list[Row], tmp_path: Path):
    """By one that passes; `make -C tests coverage-report` says which."""
    traces = tmp_path / "tests.json"
    failures = tracing.run(traces, "--until-all-entered")
    assert report.untested(rows, json.loads(traces.read_text())) == [], failures


def test_rows_of_one_flavour_of_stream_have_their_twin(rows: list[Row]):
    """Every name with a legacy-stream row has one for per-thread streams, and the other way round."""
    flavours: dict[str, set[str]] = {}
    for row in rows:
        flavours.setdefault(row.name, set()).add(row.stream)
    assert not [name for name, found in flavours.items() if found not in ({"ANY"}, {"LEGACY", "PER_THREAD"})]


BINDINGS = """
ctypedef unsigned long long CUdeviceptr 'CUdeviceptr'
    ctypedef CUstream_st* CUstream 'CUstream'
cdef CUresult cuMemAlloc(CUdeviceptr* dptr, size_t bytesize) except ?CUDA_ERROR_NOT_FOUND nogil
cdef CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) except ?CUDA_ERROR_NOT_FOUND nogil
cdef CUresult cuTexRefCreate(CUtexref* pTexRef) except ?CUDA_ERROR_NOT_FOUND nogil
cdef CUresult cuDriverGetVersion(int* driverVersion) except ?CUDA_ERROR_NOT_FOUND nogil
"""
LOADER = b"_internal.driver._cuMemAlloc_v2 _internal.driver._cuMemFreeAsync"


def test_nothing_is_named_while_all_that_matters_has_a_row(rows: list[Row]):
    """Hooked, harmless with a reason, or outside of the rule."""
    assert findings(Bindings(BINDINGS, LOADER), rows) == []


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("cuMemBorrow(size_t bytes)", "cuMemBorrow(size_t bytes)"),
        ("cuKernelEnqueue(CUstream hStream)", "cuKernelEnqueue(CUstream hStream)"),
        ("cuQuickSand(CUdeviceptr* place)", "cuQuickSand(CUdeviceptr* place)"),
        ("cuMemAlloc_v9(CUdeviceptr* dptr)", "cuMemAlloc_v9: other versions of it have rows"),
    ],
)
def test_a_new_function_is_named(rows: list[Row], declared: str, found: str):
    """By a word in its name, by what it hands out, or as a newer version of what we hook."""
    new = f"cdef CUresult {declared} except ?CUDA_ERROR_NOT_FOUND nogil\n"
    assert findings(Bindings(BINDINGS + new, LOADER), rows) == [found]


@pytest.mark.parametrize(
    "parameters",
    [
        "CUdeviceptr dptr",
        "CUdeviceptr dptr, CUstream hStream, int flags",
        "CUdeviceptr* dptr, CUstream hStream",
    ],
)
def test_a_hook_with_other_parameters_than_the_functions_is_named(rows: list[Row], parameters: str):
    """Too few, too many, or of another kind."""
    changed = BINDINGS.replace("CUdeviceptr dptr, CUstream hStream", parameters)
    (found,) = findings(Bindings(changed, LOADER), rows)
    assert found.startswith("cuMemFreeAsync: the hook takes ('8', 'pointer')")


ENTRY = re.compile(r"^ENTRY\((\w+), (\w+), (\d+), STREAM_(\w+)\)", re.MULTILINE)


def test_all_versions_and_flavours_of_an_entry_have_their_rows(rows: list[Row]):
    """Those that the simulated driver knows, from the same CUDA version on; a row's flavour is its symbol's."""
    known = {row.symbol: row for row in rows}
    names = {row.name for row in rows}
    for path in (LIBSHIM.parent / "sandbox" / "driver" / "entries").glob("*.def"):
        for name, symbol, since, flavour in ENTRY.findall(path.read_text()):
            if name not in names:
                continue
            assert symbol in known, f"no row for {symbol}"
            row = known[symbol]
            assert (row.name, row.since) == (name, int(since))
            assert row.stream in {"ANY", flavour}


def test_every_function_of_the_bindings_at_hand_has_its_row(rows: list[Row]):
    """`make -C tests check-new-cuda` asks the same of the newest ones."""
    package = Path(next(iter(importlib.import_module("cuda.bindings").__path__)))
    assert findings(read_installed(package), rows) == []


CUDA_13_5 = Path(__file__).parents[1] / "data" / "cuda-13.5.txt"


def listed() -> set[str]:
    """The symbols of CUDA 13.5 that may take memory or submit work."""
    return {line for line in CUDA_13_5.read_text().splitlines() if not line.startswith("#")}


def test_all_of_cuda_13_5_that_may_take_memory_or_submit_work_has_its_row(rows: list[Row]):
    """It is hooked, or passed on with a reason, or harmless with a reason, whatever bindings are at hand."""
    symbols, harmless = {row.symbol for row in rows}, set(REASONS)
    missing = {symbol for symbol in listed() - symbols if plain(symbol) not in harmless}
    assert not missing
    assert len(listed()) > 300


def test_the_list_of_cuda_13_5_is_what_its_bindings_have():
    """Where they are at hand."""
    module = importlib.import_module("cuda.bindings")
    if not module.__version__.startswith("13.5."):
        pytest.skip(f"cuda-bindings {module.__version__} are at hand")
    bindings = read_installed(Path(next(iter(module.__path__))))
    assert listed() == {function.symbol for function in bindings.functions if matters(function)}
