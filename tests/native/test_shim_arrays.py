"""Arrays are charged what they take: texels of every format, rows that are padded, tiles that others bring."""

import struct
import subprocess
from collections.abc import Callable

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell, program, two_cards
from tests.native.tenants import Tenant

MIB = 1 << 20
LIMIT = 64 * MIB
SPARSE, DEFERRED = 0x40, 0x80
HUGE = (1 << 64) - 1

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def size(*numbers: int) -> int:
    """What the interceptor takes an array of this format, width, height, depth, channels, flags (, levels) for."""
    command = [program("array_size", "array_size.c"), *map(str, numbers)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize(
    ("what", "descriptor", "expected"),
    [
        ("bytes", (0x01, 1024, 1024, 0, 1, 0), 1 << 20),
        ("floats", (0x20, 1024, 1024, 0, 4, 0), 16 << 20),
        ("padded rows", (0x20, 100, 1000, 0, 4, 0), 2048 * 1000),
        ("layers", (0x20, 128, 128, 6, 1, 1), 512 * 128 * 6),
        ("normalised words of two channels", (0xC4, 1024, 1024, 0, 2, 0), 4 << 20),
        ("signed normalised bytes of four channels", (0xC8, 1024, 1024, 0, 4, 0), 4 << 20),
        ("NV12", (0xB0, 1024, 1024, 0, 3, 0), 3 << 19),
        ("P010", (0x9F, 1024, 1024, 0, 3, 0), 3 << 20),
        ("P210", (0xA3, 1024, 1024, 0, 3, 0), 4 << 20),
        ("YUY2", (0xA5, 1024, 1024, 0, 2, 0), 2 << 20),
        ("AYUV", (0xA8, 1024, 1024, 0, 4, 0), 4 << 20),
        ("Y416", (0xB1, 1024, 1024, 0, 4, 0), 8 << 20),
        ("4:4:4 of words in planes", (0x5E, 1024, 1024, 0, 3, 0), 6 << 20),
        ("4:2:0 of bytes in planes", (0x59, 1024, 1024, 0, 3, 0), 3 << 19),
        ("10:10:10:2", (0x50, 1024, 1024, 0, 4, 0), 4 << 20),
        ("BC1", (0x91, 1024, 1024, 0, 4, 0), 1 << 19),
        ("BC7, a side that is no multiple of four", (0x9D, 1022, 1021, 0, 4, 0), 1 << 20),
        ("sparse", (0x20, 1024, 1024, 0, 4, SPARSE), 0),
        ("deferred", (0x20, 1024, 1024, 0, 4, DEFERRED), 0),
        ("two levels", (0x20, 1024, 1024, 0, 4, 0, 2), 20 << 20),
        ("all levels", (0x20, 512, 512, 0, 1, 0, 99), sum(max(512, 4 << i) << i for i in range(10))),
        ("beyond all reason", (0x5E, HUGE, HUGE, HUGE, 4, 0), HUGE),
    ],
)
def test_every_format_has_its_size(what: str, descriptor: tuple[int, ...], expected: int):
    """Texels, planes, blocks of 4 x 4 texels; rows begin at multiples of 512 bytes."""
    assert size(*descriptor) == expected, what


@pytest.mark.parametrize("width", [1, 100, 1000, 4096])
def test_padding_is_charged_as_the_card_pads(slice64: Tenant, width: int):
    """The charge is the card's count to within the block that it rounds up to."""
    descriptor = "x" + struct.pack("<QQiI", width, 999, 0x20, 4).hex()
    with Shell(slice64).begin() as shell:
        array = shell.ok("cuArrayCreate_v2", OUT, descriptor)
        used = slice64.usage().cards[0].memory_used_bytes
        assert 0 <= slice64.machine.memory_used(slice64.machine.cards[0].uuid) - used < 2 * MIB
        shell.ok("cuArrayDestroy", array)
        assert slice64.usage().cards[0].memory_used_bytes == 0


def test_small_arrays_share_blocks_and_are_charged_for_themselves(slice64: Tenant):
    """The driver says that the least it can map is 2 MiB; that is not what each of them takes."""
    descriptor = "x" + struct.pack("<QQiI", 32, 32, 0x20, 4).hex()
    with Shell(slice64).begin() as shell:
        for _ in range(64):
            shell.ok("cuArrayCreate_v2", OUT, descriptor)
        assert slice64.usage().cards[0].memory_used_bytes == 64 * 32 * 512


@pytest.mark.parametrize("flag", [SPARSE, DEFERRED])
def test_arrays_without_memory_of_their_own_cost_nothing(slice64: Tenant, flag: int):
    """What is mapped to them is charged where it is made."""
    descriptor = "x" + struct.pack("<QQQiII4x", 4096, 4096, 0, 0x20, 4, flag).hex()
    with Shell(slice64).begin() as shell:
        assert shell.call("cuArray3DCreate_v2", OUT, descriptor)[0] == SUCCESS
        assert slice64.usage().cards[0].memory_used_bytes == 0


def tile(operation: int, array: int, handle: int) -> str:
    """CUarrayMapInfo of an array's first tile."""
    where = struct.pack("<8I", 0, 0, 0, 0, 0, 64, 64, 1)
    head, tail = (
        struct.pack("<i4xQi4x", 0, array, 0),
        struct.pack("<iiQQIIII", operation, 0, handle, 0, 1, 0, 0, 0),
    )
    return "x" + (head + where + tail).hex()


@pytest.mark.parametrize("end", ["unmapped", "destroyed"])
@pytest.mark.parametrize("entry", ["cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz"])
def test_memory_mapped_to_a_tile_stays_charged(slice64: Tenant, entry: str, end: str):
    """After its handle was released: until the tile is unmapped, or the array is gone."""
    map_, unmap, memory = 1, 2, "x" + struct.pack("<iiii16x", 1, 0, 1, 0).hex()
    descriptor = "x" + struct.pack("<QQQiII4x", 1024, 1024, 0, 0x20, 4, SPARSE).hex()
    with Shell(slice64).begin() as shell:
        array = shell.ok("cuArray3DCreate_v2", OUT, descriptor)
        handle = shell.ok("cuMemCreate", OUT, 2 * MIB, memory, 0)
        shell.ok(entry, tile(map_, array, handle), 1, 0)
        shell.ok("cuMemRelease", handle)
        assert slice64.usage().cards[0].memory_used_bytes == 2 * MIB
        if end == "unmapped":
            shell.ok(entry, tile(unmap, array, 0), 1, 0)
        else:
            shell.ok("cuArrayDestroy", array)
        assert slice64.usage().cards[0].memory_used_bytes == 0


@pytest.mark.parametrize("entry", ["cuMemAllocPitch", "cuMemAllocPitch_v2"])
def test_pitched_memory_is_charged_by_its_pitch(slice64: Tenant, entry: str):
    """A column one byte wide takes a whole pitch for every row."""
    with Shell(slice64).begin() as shell:
        _, _, pitch = shell.call(entry, OUT, OUT, 1, 1000, 4)
        assert slice64.usage().cards[0].memory_used_bytes == pitch * 1000
        assert shell.call(entry, OUT, OUT, 1, LIMIT // pitch, 4)[0] == OUT_OF_MEMORY
