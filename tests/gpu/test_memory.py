"""What the account of memory takes from NVIDIA's documentation, asked of a card."""

from subprocess import Popen

import pytest

from tests.gpu.conftest import Card, Slice, SliceMaker

LIMIT = 4 << 30
NOISE = 16 << 20
"""What the driver may keep for a process that has ended, or is put aside."""


def hear(process: Popen[str]) -> str:
    """The next line of a program."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: Popen[str], line: str) -> str:
    """Gives a program its next line; its answer."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return hear(process)


def used(slice_: Slice) -> int:
    """Bytes in use by the tenant's account."""
    return slice_.usage().cards[0].memory_used_bytes


@pytest.mark.gpu
def test_a_checkpointed_process_has_nothing_on_the_card(card: Card, slice_of: SliceMaker, context_bytes: int):
    """Nor in its slice; restored, both are as before."""
    slice_ = slice_of(LIMIT, context_bytes=context_bytes)
    empty = card.used()
    with slice_.start("blocks", 1, 1 << 30) as holder:
        assert hear(holder) == "ready"
        full, charged = card.used(), used(slice_)
        with slice_.start("checkpoint", holder.pid) as operator:
            assert hear(operator) == "ready"
            if (answers := tell(operator, "aside")) != "0 0":
                pytest.skip(f"NOT RUN: this driver checkpoints no processes: {answers}")
            assert used(slice_) == 0
            assert card.used() - empty < NOISE
            assert tell(operator, "back") == "0 0"
            assert used(slice_) == charged
            assert abs(card.used() - full) < NOISE
            assert operator.stdin is not None
            operator.stdin.close()
        assert holder.stdin is not None
        holder.stdin.close()


KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.gpu
@pytest.mark.parametrize("size", [4 * KIB, 512 * KIB, MIB, MIB + 4 * KIB, 3 * MIB, 5 * MIB - 1])
def test_plain_memory_is_charged_what_the_card_gives(
    card: Card, slice_of: SliceMaker, context_bytes: int, size: int
):
    """Blocks of any size, within what one granule holds: the driver rounds as we do."""
    count, granule = 200, 2 * MIB
    slice_ = slice_of(LIMIT, context_bytes=context_bytes)
    empty = card.used()
    with slice_.start("blocks", count, size) as holder:
        assert hear(holder) == "ready"
        assert abs(card.used() - empty - used(slice_)) <= max(NOISE, granule)
        assert holder.stdin is not None
        holder.stdin.close()
