"""The journal of Allocate's answers."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aliquot.plugin.kubelet.allocation_journal import (
    Allocation,
    AllocationJournal,
    JournalError,
    decode_line,
    encode_line,
)

FIRST = Allocation("n1", "aliquot.dev/gpu", frozenset({"GPU-a::0"}))
SECOND = Allocation("n2", "aliquot.dev/gpu", frozenset({"GPU-a::0"}))
OTHER = Allocation("n3", "aliquot.dev/gpu", frozenset({"GPU-a::0", "GPU-b::1"}))


def test_a_second_reader_finds_what_was_recorded(tmp_path: Path):
    """In the order in which it was answered."""
    AllocationJournal(tmp_path / "journal").record([FIRST, SECOND, OTHER])
    assert AllocationJournal(tmp_path / "journal").all() == (FIRST, SECOND, OTHER)


def test_ids_find_allocations_of_exactly_these_ids(tmp_path: Path):
    """An init container and a later one share ids, so one set may have several nonces."""
    journal = AllocationJournal(tmp_path / "journal")
    journal.record([FIRST, OTHER, SECOND])
    assert journal.holding("aliquot.dev/gpu", ["GPU-a::0"]) == (FIRST, SECOND)
    assert journal.holding("aliquot.dev/gpu", ["GPU-b::1", "GPU-a::0"]) == (OTHER,)
    assert journal.holding("aliquot.dev/mig-1g.18gb", ["GPU-a::0"]) == ()


def test_an_id_may_be_held_under_another_resource(tmp_path: Path):
    """As under the name that the resource had in the domain before."""
    journal = AllocationJournal(tmp_path / "journal")
    journal.record([FIRST])
    assert journal.only_for("aliquot.dev/gpu", "GPU-a::0")
    assert not journal.only_for("gpu.example.com/gpu", "GPU-a::0")
    assert journal.only_for("gpu.example.com/gpu", "GPU-a::1")


def test_a_forgotten_allocation_does_not_come_back(tmp_path: Path):
    """The file is rewritten whole."""
    journal = AllocationJournal(tmp_path / "journal")
    journal.record([FIRST, SECOND])
    journal.forget(["n1", "unknown"])
    assert AllocationJournal(tmp_path / "journal").all() == (SECOND,)


@pytest.mark.parametrize("cut", range(1, len(encode_line(SECOND))))
def test_a_line_cut_anywhere_by_a_kill_is_dropped_quietly(tmp_path: Path, cut: int):
    """The lines before it stand, and the file is set aside by nobody."""
    (tmp_path / "journal").write_bytes(encode_line(FIRST) + encode_line(SECOND)[:-cut])
    journal = AllocationJournal(tmp_path / "journal")
    journal.record([OTHER])
    assert AllocationJournal(tmp_path / "journal").all() == (FIRST, OTHER)
    assert list(tmp_path.iterdir()) == [tmp_path / "journal"]


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path):
    """Other programs' files are not touched."""
    for name in (".journal.x1", "journal", "lock"):
        (tmp_path / name).touch()
    AllocationJournal(tmp_path / "journal")
    assert {path.name for path in tmp_path.iterdir()} == {"journal", "lock"}


def test_a_flipped_bit_costs_its_own_line_only(tmp_path: Path):
    """The damaged file is kept beside, for whoever wants to know."""
    line = bytearray(encode_line(FIRST))
    line[20] ^= 1
    (tmp_path / "journal").write_bytes(bytes(line) + encode_line(SECOND))
    assert AllocationJournal(tmp_path / "journal").all() == (SECOND,)
    assert (tmp_path / "journal.corrupt-1").exists()


def test_a_line_of_another_format_is_no_allocation():
    """A checksum that fits is not enough."""
    with pytest.raises(JournalError, match="checksum"):
        decode_line(b"00000000 {}")


def test_a_full_disk_fails_no_allocation_and_is_made_good_later(tmp_path: Path):
    """An Allocate error would end the pod for good; the next change writes what could not be written."""
    program = """
import resource, signal, sys
from pathlib import Path
from aliquot.plugin.kubelet.allocation_journal import Allocation, AllocationJournal
journal = AllocationJournal(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
journal.record([Allocation("n1", "r", frozenset({"a"}))])
assert journal.holding("r", ["a"]), "known though not written"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.record([Allocation("n2", "r", frozenset({"b"}))])
"""
    path = tmp_path / "journal"
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, cwd=Path(__file__).parents[4])
    assert [one.nonce for one in AllocationJournal(path).all()] == ["n1", "n2"]


def test_reading_does_not_wait_for_a_disk_that_writes(tmp_path: Path):
    """The event loop reads; a pipe that nobody empties stands for a disk that takes its time."""
    journal = AllocationJournal(tmp_path / "journal")
    os.mkfifo(tmp_path / "journal")
    with ThreadPoolExecutor() as threads:
        writing = threads.submit(journal.record, [FIRST])
        try:
            deadline = time.monotonic() + 10
            while not threads.submit(journal.all).result(timeout=5):
                assert time.monotonic() < deadline
            assert journal.holding(FIRST.resource, FIRST.ids) == (FIRST,)
            assert not writing.done()
        finally:
            os.close(os.open(tmp_path / "journal", os.O_RDONLY))
