"""The pages between agent and interceptor: what is written is read, and what is broken is never taken for open."""

import contextlib
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.libshim.control_page import (
    CardLimit,
    Control,
    Enforcement,
    change_control,
    create_control,
    read_control,
    update_control,
)
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import create_usage, read_usage
from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, Shell, program, two_cards
from tests.native.tenants import Tenant

PAGES = Path(__file__).with_name("pages")
LIMIT = 64 << 20
CONTROL_SIZE, USAGE_SIZE = 8192, 69632
SEQUENCE_OFFSET, ENFORCEMENT_OFFSET, COUNT_OFFSET = 16, 20, 24

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=14)
sizes = st.integers(0, 2**48 - 1)


def some_cards(
    overflow: st.SearchStrategy[int | None], most: int
) -> st.SearchStrategy[tuple[CardLimit, ...]]:
    """Limits of 1 to `most` cards."""
    card = st.builds(
        CardLimit,
        names.map("GPU-".__add__),
        sizes,
        st.integers(0, 100),
        grant_bytes=st.none() | sizes,
        overflow_bytes=overflow,
        adjust_bytes=st.integers(-(2**40), 2**40),
        context_bytes=sizes,
        core_share_bp=st.integers(0, 10_000),
        core_most_percent=st.integers(0, 100),
        priority=st.integers(0, 9),
        doubted=st.booleans(),
        managed_resident=st.booleans(),
    )
    return st.lists(card, min_size=1, max_size=most, unique_by=lambda card: card.uuid).map(tuple)


controls = st.builds(
    Control,
    names,
    some_cards(st.none(), 16) | some_cards(st.none() | sizes, 8),
    st.sampled_from(Enforcement),
)

SAMPLE = Control(
    "team/worker-0/trainer",
    (CardLimit("GPU-8d7a6b9c-0000-0000-0000-000000000001", 8 << 30, 30), CardLimit("MIG-2", 1 << 30)),
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def patch(path: Path, offset: int, content: bytes) -> None:
    """Overwrites a part of a page in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


@given(control=controls)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, control: Control):
    """Every control page survives the way through the file."""
    path = tmp_path_factory.mktemp("pages") / "control"
    create_control(path, control)
    assert read_control(path) == control


def test_a_page_of_version_1_is_still_read():
    """Containers keep the pages they were started with while agents are upgraded."""
    assert read_control(PAGES / "v1-control.bin") == SAMPLE
    usage = read_usage(PAGES / "v1-usage.bin")
    assert (usage.cards[1].memory_used_bytes, usage.cards[1].memory_peak_bytes) == (5 << 20, 7 << 20)
    assert (usage.cards[1].allocations_denied, usage.cards[1].busy_ns, usage.cards[1].throttled_ns) == (
        3,
        40,
        50,
    )
    assert [process.pid for process in usage.processes] == [4711]
    assert usage.processes[0].memory_bytes[1] == 5 << 20
    assert (usage.processes[0].pid_namespace, usage.processes[0].start_time) == (4026531836, 99)
    assert (usage.shim_version, usage.note) == ("aliquot 0.1.0", "an example")


def test_pages_have_the_modes_that_both_sides_need(tmp_path: Path):
    """Everybody may read limits, only the agent writes them; every process of a container writes usage."""
    create_control(tmp_path / "control", SAMPLE)
    create_usage(tmp_path / "usage")
    assert (tmp_path / "control").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "usage").stat().st_mode & 0o777 == 0o666
    assert sorted(path.name for path in tmp_path.iterdir()) == ["control", "usage"]


def test_an_update_keeps_the_file(tmp_path: Path):
    """A mount shows the old inode for ever, so limits change in place."""
    create_control(tmp_path / "control", SAMPLE)
    before = (tmp_path / "control").stat().st_ino
    changed = Control(
        SAMPLE.tenant, tuple(CardLimit(c.uuid, 1, 1) for c in SAMPLE.cards), Enforcement.OBSERVE
    )
    update_control(tmp_path / "control", changed)
    assert read_control(tmp_path / "control") == changed
    assert (tmp_path / "control").stat().st_ino == before


def test_changes_of_several_writers_are_all_made(tmp_path: Path):
    """Whoever changes limits sees what the others wrote: no change is lost."""
    path = tmp_path / "control"
    create_control(path, Control("t", (CardLimit("GPU-1", 0),)))

    def grow(control: Control | None) -> Control:
        assert control is not None
        return Control("t", (CardLimit("GPU-1", control.cards[0].memory_bytes + 1),))

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(lambda _: change_control(path, grow), range(200)))
    assert read_control(path).cards[0].memory_bytes == 200


BAD_CONTROLS = {
    "no card": Control("t", ()),
    "seventeen cards": Control("t", tuple(CardLimit(f"GPU-{i}", 1) for i in range(17))),
    "a card twice": Control("t", (CardLimit("GPU-1", 1), CardLimit("GPU-1", 2))),
    "negative memory": Control("t", (CardLimit("GPU-1", -1),)),
    "memory beyond a tally": Control("t", (CardLimit("GPU-1", 1 << 48),)),
    "overflow with nine cards": Control(
        "t", tuple(CardLimit(f"GPU-{i}", 1, overflow_bytes=1) for i in range(9))
    ),
    "101 percent": Control("t", (CardLimit("GPU-1", 1, 101),)),
    "no tenant": Control("", (CardLimit("GPU-1", 1),)),
    "a tenant of 128 bytes": Control("t" * 128, (CardLimit("GPU-1", 1),)),
    "a UUID of 64 bytes": Control("t", (CardLimit("G" * 64, 1),)),
}


@pytest.mark.parametrize("control", BAD_CONTROLS.values(), ids=BAD_CONTROLS)
def test_limits_that_fit_no_page_are_refused_and_change_nothing(tmp_path: Path, control: Control):
    """The error names the file; neither a new nor an old page is touched."""
    path = tmp_path / "control"
    with pytest.raises(PageError, match=str(path)):
        create_control(path, control)
    assert list(tmp_path.iterdir()) == []
    create_control(path, SAMPLE)
    with pytest.raises(PageError):
        update_control(path, control)
    assert read_control(path) == SAMPLE


def test_an_update_with_other_cards_is_refused(tmp_path: Path):
    """Processes have found their cards' places in the page already."""
    create_control(tmp_path / "control", SAMPLE)
    with pytest.raises(PageError, match="cards"):
        update_control(tmp_path / "control", Control(SAMPLE.tenant, SAMPLE.cards[:1]))
    assert read_control(tmp_path / "control") == SAMPLE


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: os.truncate(path, 100),
    "empty": lambda path: os.truncate(path, 0),
    "of another kind": lambda path: patch(path, 0, b"#!/bin/s"),
    "of another version": lambda path: patch(path, 8, (2).to_bytes(4, "little")),
}
CONTROL_DAMAGE = DAMAGE | {
    "with too many cards": lambda path: patch(path, COUNT_OFFSET, (17).to_bytes(4, "little")),
    "of unknown enforcement": lambda path: patch(path, ENFORCEMENT_OFFSET, (9).to_bytes(4, "little")),
    "half-written": lambda path: patch(path, SEQUENCE_OFFSET, (7).to_bytes(4, "little")),
    "not a file": lambda path: (path.unlink(), path.mkdir()),
}
USAGE_DAMAGE = DAMAGE | {"gone": Path.unlink}


@pytest.mark.parametrize("damage", CONTROL_DAMAGE)
def test_a_damaged_control_page_means_no_memory_and_one_line_why(tenant: Callable[..., Tenant], damage: str):
    """Never open: every allocation is refused, stderr has one line and the usage page a note."""
    made = tenant(LIMIT)
    CONTROL_DAMAGE[damage](made.control)
    with Shell(made).begin() as shell:
        for _ in range(2):
            assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        assert shell.memory_info()[0] == 0
        assert str(made.control) in made.usage().note
        shell.say(".exit")
        _, errors = shell.process.communicate(timeout=60)
    lines = errors.splitlines()
    assert lines
    assert len(lines) <= (4 if damage == "half-written" else 1)
    assert str(made.control) in lines[0]


@pytest.mark.parametrize("damage", USAGE_DAMAGE)
def test_a_damaged_usage_page_means_no_memory(tenant: Callable[..., Tenant], damage: str):
    """Without the account nothing can be taken from it."""
    made = tenant(LIMIT)
    USAGE_DAMAGE[damage](made.usage_page)
    with Shell(made).begin() as shell:
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY


@pytest.mark.parametrize("damage", [name for name in CONTROL_DAMAGE if name != "not a file"])
def test_the_reader_names_what_is_wrong_with_a_control_page(tmp_path: Path, damage: str):
    """PageError with the path, and no other exception."""
    create_control(tmp_path / "control", SAMPLE)
    CONTROL_DAMAGE[damage](tmp_path / "control")
    with pytest.raises(PageError, match="control"):
        read_control(tmp_path / "control")


@given(
    content=st.binary(max_size=200), offset=st.integers(0, USAGE_SIZE - 1), size=st.integers(0, USAGE_SIZE)
)
def test_no_usage_page_breaks_its_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, offset: int, size: int
):
    """A tenant can write what it likes and cut the file where it likes: the reader answers or raises PageError."""
    path = tmp_path_factory.mktemp("pages") / "usage"
    create_usage(path)
    patch(path, offset, content)
    os.truncate(path, size)
    with contextlib.suppress(PageError):
        assert len(read_usage(path).cards) == 16


def test_a_page_is_never_seen_half_changed(tmp_path: Path):
    """While another process changes limits as fast as it can, every reader sees those of one and the same change."""
    path = tmp_path / "control"
    create_control(path, Control("t", tuple(CardLimit(f"GPU-{i}", 0) for i in range(16))))
    seen = set()
    with subprocess.Popen(
        [program("control_storm"), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        for _ in range(3000):
            with contextlib.suppress(PageError):  # it never held still: refused, not half-read
                limits = {card.memory_bytes for card in read_control(path).cards}
                assert len(limits) == 1
                seen |= limits
    assert len(seen) > 1


def test_half_written_limits_are_in_force_once_they_are_whole(tenant: Callable[..., Tenant]):
    """An agent killed between two words is started again; the program gets its memory without being restarted."""
    made = tenant(LIMIT)
    patch(made.control, SEQUENCE_OFFSET, (7).to_bytes(4, "little"))
    with Shell(made).begin() as shell:
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        control = Control(f"test/{made.directory.name}", (CardLimit(made.machine.cards[0].uuid, LIMIT),))
        update_control(made.control, control)
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)


def test_enforcement_off_touches_nothing_and_observe_counts(tenant: Callable[..., Tenant]):
    """Both leave the program alone; observe counts what it would have denied; enforce takes hold at once."""
    made = tenant(LIMIT)
    limit = (CardLimit(made.machine.cards[0].uuid, LIMIT),)
    name = f"test/{made.directory.name}"
    update_control(made.control, Control(name, limit, Enforcement.OFF))
    with Shell(made).begin() as shell:
        blocks = [shell.ok("cuMemAlloc_v2", OUT, 2 * LIMIT)]
        assert shell.memory_info()[1] == made.machine.cards[0].memory_mib << 20
        assert made.usage().cards[0].allocations_denied == 0
        update_control(made.control, Control(name, limit, Enforcement.OBSERVE))
        blocks.append(shell.ok("cuMemAlloc_v2", OUT, LIMIT))
        assert made.usage().cards[0].allocations_denied == 1
        update_control(made.control, Control(name, limit, Enforcement.ENFORCE))
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
        for block in blocks:
            shell.ok("cuMemFree_v2", block)
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)


def test_no_environment_lifts_a_damaged_page(tenant: Callable[..., Tenant]):
    """HAMi-core's limits count only where there is no control page at all."""
    made = tenant(LIMIT)
    os.truncate(made.control, 10)
    with Shell(made, CUDA_DEVICE_MEMORY_LIMIT="4g").begin() as shell:
        assert shell.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY


def test_hami_cores_environment_is_a_quota_over_all_processes(tenant: Callable[..., Tenant], tmp_path: Path):
    """Without a control page its limit holds, and the page at its path is shared."""
    made = tenant(LIMIT)
    environment = {
        "ALIQUOT_CONTROL_PAGE": "",
        "ALIQUOT_USAGE_PAGE": "",
        "CUDA_DEVICE_MEMORY_LIMIT": "64m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "shared.cache"),
    }
    with Shell(made, **environment).begin() as one, Shell(made, **environment).begin(device=1) as other:
        one.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert one.memory_info() == (0, LIMIT)
        other.ok("cuMemAlloc_v2", OUT, LIMIT)
        with Shell(made, **environment).begin() as third:
            assert third.call("cuMemAlloc_v2", OUT, 1)[0] == OUT_OF_MEMORY
    assert read_usage(tmp_path / "shared.cache").cards[1].memory_used_bytes == LIMIT


CONTAINER = """
mount -t tmpfs none /run && mkdir /run/aliquot &&
ln -s "$1" /run/aliquot/control && ln -s "$2" /run/aliquot/usage && exec "$3"
"""


def test_the_pages_in_the_container_beat_the_environment(tenant: Callable[..., Tenant]):
    """A program that names pages of its own making still gets the slice that is mounted."""
    made, dream = tenant(LIMIT), tenant(16 * LIMIT)
    command = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        CONTAINER,
        "sh",
        made.control,
        made.usage_page,
    ]
    if subprocess.run([*command[:3], "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine has no mount namespaces for us")
    with Shell(dream, prefix=command).begin() as shell:
        assert shell.memory_info() == (LIMIT, LIMIT)
        assert shell.call("cuMemAlloc_v2", OUT, 2 * LIMIT)[0] == OUT_OF_MEMORY
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert made.usage().cards[0].memory_used_bytes == LIMIT


def test_the_reader_is_built_from_the_interceptors_header(tmp_path: Path):
    """One page written by C code compiled from the header is read by Python."""
    writer = tmp_path / "writer"
    code = """
    #include "aliquot_pages.h"
    #include <stdio.h>
    int main(void) {
      static aq_usage_page page = {.magic = AQ_USAGE_MAGIC, .version = AQ_PAGE_VERSION, .size = AQ_USAGE_SIZE,
        .card_count = AQ_MAX_CARDS, .slot_count = AQ_MAX_SLOTS, .note = "from C"};
      page.cards[15].memory = 77ull << AQ_TALLY_SHIFT | 0x1234;
      page.slots[255].owner = 1, page.slots[255].pid = 9;
      return fwrite(&page, sizeof page, 1, stdout) != 1;
    }"""
    include = Path(__file__).resolve().parents[2] / "libshim" / "include"
    subprocess.run(["cc", f"-I{include}", "-x", "c", "-o", writer, "-"], input=code, text=True, check=True)
    (tmp_path / "usage").write_bytes(subprocess.run([writer], capture_output=True, check=True).stdout)
    usage = read_usage(tmp_path / "usage")
    assert (usage.note, usage.cards[15].memory_used_bytes, usage.processes[0].pid) == ("from C", 77, 9)


def test_a_usage_page_of_an_older_agent_has_no_annex(slice64: Tenant):
    """Its file ends where the first layout did: the quota holds all the same."""
    slice64.shorten_usage(USAGE_SIZE)
    with Shell(slice64).begin() as shell:
        assert shell.call("cuMemAlloc_v2", OUT, LIMIT + 1)[0] == OUT_OF_MEMORY
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert slice64.usage().cards[0].memory_used_bytes == LIMIT
