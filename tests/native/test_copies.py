"""Copies and fills are work: the gate holds them, the page counts them, in every family and flavour."""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from aliquot.libshim.control_page import CardLimit
from aliquot.libshim.coverage.table import read_table
from aliquot.sandbox.gpus import SimMachine
from tests.native.leases import Lessor, Work
from tests.native.shells import OUT, Shell
from tests.native.sims import wait_for
from tests.native.tenants import Tenant

MIB = 1 << 20
BYTES = 8 * MIB
TEXELS, ARRAY_BYTES = 131072, 2 * MIB
ROW, ROWS = 8192, 1024
DEVICE = 2

SYMBOLS = [
    row.symbol
    for row in read_table()
    if row.hooked and re.match("cuMemcpy|cuMemset|cuMemBatchDecompress", row.symbol)
]


@dataclass(frozen=True)
class Memory:
    """What is copied between: addresses (those of the first ABI have 32 bits), and arrays of bytes."""

    host: int
    device: int
    other: int
    narrow: int
    narrow_other: int
    array: int
    other_array: int
    context: int


def packed(form: str, *values: int) -> str:
    """A structure as the shell takes it."""
    return "x" + struct.pack(form, *values).hex()


def memory_in(shell: Shell) -> Memory:
    """Takes it."""
    line = packed("=QQiI", TEXELS, 0, 0x20, 4)
    return Memory(
        host=shell.ok("cuMemAllocHost_v2", OUT, BYTES),
        device=shell.ok("cuMemAlloc_v2", OUT, BYTES),
        other=shell.ok("cuMemAlloc_v2", OUT, BYTES),
        narrow=shell.ok("cuMemAlloc", OUT, BYTES),
        narrow_other=shell.ok("cuMemAlloc", OUT, BYTES),
        array=shell.ok("cuArrayCreate_v2", OUT, line),
        other_array=shell.ok("cuArrayCreate_v2", OUT, line),
        context=shell.ok("cuCtxGetCurrent", OUT),
    )


def flat(m: Memory, kind: str, x: str, width: int = ROW, rows: int = ROWS) -> str:
    """CUDA_MEMCPY2D, in words of `kind`, of memory at addresses of `x`: places, what and where, pitch, for each end."""
    addresses = (m.narrow, m.narrow_other) if kind == "I" else (m.device, m.other)
    ends = [value for address in addresses for value in (0, 0, DEVICE, 0, address, 0, width)]
    return packed("@" + f"{kind}{kind}iP{x}P{kind}" * 2 + kind * 2, *ends, width, rows)


def deep(m: Memory, kind: str, x: str, shape: tuple[int, int, int] = (ROW, ROWS, 1)) -> str:
    """CUDA_MEMCPY3D, the same with a third dimension."""
    addresses = (m.narrow, m.narrow_other) if kind == "I" else (m.device, m.other)
    context = m.context if kind == "P" else 0
    word = "Q" if kind == "P" else kind
    ends = [
        value for address in addresses for value in (0, 0, 0, 0, DEVICE, 0, address, 0, context, *shape[:2])
    ]
    return packed("@" + f"{word * 4}iP{x}PP{word * 2}" * 2 + word * 3, *ends, *shape)


def operation(m: Memory, width: int = BYTES, rows: int = 1, depth: int = 1) -> str:
    """CUDA_MEMCPY3D_BATCH_OP between pointers."""
    location = (1, 0)
    ends = [value for address in (m.other, m.device) for value in (1, address, 0, 0, *location)]
    return packed("@" + "iQQQii" * 2 + "QQQiI", *ends, width, rows, depth, 1, 0)


def some(*values: int) -> str:
    """A list of addresses or sizes."""
    return packed(f"@{len(values)}Q", *values)


LINES: dict[str, Callable[[Memory, bool], tuple[object, ...]]] = {
    "cuMemcpy": lambda m, _: (m.device, m.other, BYTES),
    "cuMemcpyPeer": lambda m, _: (m.device, m.context, m.other, m.context, BYTES),
    "cuMemcpyHtoD": lambda m, v1: (m.narrow if v1 else m.device, m.host, BYTES),
    "cuMemcpyDtoH": lambda m, v1: (m.host, m.narrow if v1 else m.device, BYTES),
    "cuMemcpyDtoD": lambda m, v1: (*((m.narrow, m.narrow_other) if v1 else (m.device, m.other)), BYTES),
    "cuMemcpyDtoA": lambda m, v1: (m.array, 0, m.narrow if v1 else m.device, ARRAY_BYTES),
    "cuMemcpyAtoD": lambda m, v1: (m.narrow if v1 else m.device, m.array, 0, ARRAY_BYTES),
    "cuMemcpyHtoA": lambda m, _: (m.array, 0, m.host, ARRAY_BYTES),
    "cuMemcpyAtoH": lambda m, _: (m.host, m.array, 0, ARRAY_BYTES),
    "cuMemcpyAtoA": lambda m, _: (m.array, 0, m.other_array, 0, ARRAY_BYTES),
    "cuMemcpy2D": lambda m, v1: (flat(m, *("II" if v1 else "QQ")),),
    "cuMemcpy2DUnaligned": lambda m, v1: (flat(m, *("II" if v1 else "QQ")),),
    "cuMemcpy3D": lambda m, v1: (deep(m, *("II" if v1 else "QQ")),),
    "cuMemcpy3DPeer": lambda m, _: (deep(m, "P", "Q"),),
    "cuMemcpyWithAttributes": lambda m, _: (m.device, m.other, BYTES, packed("=5Q", 1, 0, 0, 0, 0)),
    "cuMemcpy3DWithAttributes": lambda m, _: (operation(m), 0),
    "cuMemsetD8": lambda m, v1: (m.narrow if v1 else m.device, 7, BYTES),
    "cuMemsetD16": lambda m, v1: (m.narrow if v1 else m.device, 7, BYTES // 2),
    "cuMemsetD32": lambda m, v1: (m.narrow if v1 else m.device, 7, BYTES // 4),
    "cuMemsetD2D8": lambda m, v1: (m.narrow if v1 else m.device, ROW, 7, ROW, ROWS),
    "cuMemsetD2D16": lambda m, v1: (m.narrow if v1 else m.device, ROW, 7, ROW // 2, ROWS),
    "cuMemsetD2D32": lambda m, v1: (m.narrow if v1 else m.device, ROW, 7, ROW // 4, ROWS),
}
MANY: dict[str, Callable[[Memory, bool], tuple[object, ...]]] = {
    "cuMemcpyBatch": lambda m, v1: (
        *(some(m.device), some(m.other), some(BYTES), 1, packed("=5Q", 1, 0, 0, 0, 0), some(0), 1),
        *((OUT,) if v1 else ()),
    ),
    "cuMemcpy3DBatch": lambda m, v1: (1, operation(m), *((OUT,) if v1 else ()), 0),
    "cuMemBatchDecompress": lambda m, _: (
        *(packed("@QQPPPi20x", BYTES, BYTES, 0, m.other, m.device, 1), 1, 0, OUT),
    ),
}
NOT_SIMULATED = re.compile(
    r"cuMemcpy[HD]to[HD](Async)?|cuMemsetD(2D)?\d+|cuMemcpy[23]D(Unaligned)?(Async)?|cuMemcpy(Ato.|.toA).*"
)
"""Addresses of 32 bits, and lines of arrays: the simulated driver refuses them when they have passed the gate."""


def arguments(symbol: str, m: Memory, stream: int) -> tuple[object, ...]:
    """With which a call succeeds, and moves BYTES."""
    name = re.sub("_pt[ds][sz]$", "", symbol)
    stem = name.removesuffix("_v2").removesuffix("Async")
    is_first = not name.endswith("_v2") and not (stem.startswith("cuMemset") and name.endswith("Async"))
    make = LINES.get(stem) or MANY[stem]
    return (*make(m, is_first), *((stream,) if "Async" in name else ()))


@pytest.fixture
def lessor(machine: SimMachine, tenant: Callable[..., Tenant]) -> Lessor:
    """Of a tenant with a share of the first card."""
    own = tenant(limits=[CardLimit(machine.cards[0].uuid, 1 << 30, core_share_bp=3000, core_most_percent=30)])
    return Lessor(own)


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_a_copy_or_fill_waits_at_a_closed_gate_and_is_counted(lessor: Lessor, symbol: str):
    """It is made when the gate opens, and the page says how long the card took."""
    with lessor, Shell(lessor.tenant).begin() as shell:
        lessor.open(window_us=8000)
        memory = memory_in(shell)
        lessor.close()
        before = lessor.tenant.usage().cards[0].busy_ns
        stream = shell.ok("cuStreamCreate", OUT, 1)
        shell.say(" ".join(map(str, (symbol, *arguments(symbol, memory, stream)))))
        wait_for(lambda: lessor.works() == [Work.WAITING], "the call at the gate")
        lessor.open(window_us=8000)
        status, *_ = shell.hear().split()
        assert status == ("801" if NOT_SIMULATED.fullmatch(symbol) else "0")
        if status == "0":
            wait_for(lambda: lessor.tenant.usage().cards[0].busy_ns > before, "its time")


CUBE = (16, 64)
"""Rows and layers."""
ATTRIBUTES = packed("=5Q", 1, 0, 0, 0, 0)
EDGES: dict[str, tuple[str, int, Callable[[Memory, int], tuple[object, ...]]]] = {
    "to the card": ("cuMemcpyHtoD_v2", 1, lambda m, bytes_: (m.device, m.host, bytes_)),
    "from the card": ("cuMemcpyDtoH_v2", 1, lambda m, bytes_: (m.host, m.device, bytes_)),
    "within it": ("cuMemcpyDtoD_v2", 1, lambda m, bytes_: (m.device, m.other, bytes_)),
    "by addresses": ("cuMemcpy", 1, lambda m, bytes_: (m.device, m.host, bytes_)),
    "fill": ("cuMemsetD8_v2", 1, lambda m, bytes_: (m.device, 7, bytes_)),
    "fill of words": ("cuMemsetD32_v2", 4, lambda m, words: (m.device, 7, words)),
    "rows of a fill": ("cuMemsetD2D16_v2", 32, lambda m, width: (m.device, 2 * width, 7, width, 16)),
    "rows": ("cuMemcpy2D_v2", 16, lambda m, width: (flat(m, "Q", "Q", width, 16),)),
    "layers": ("cuMemcpy3D_v2", 1024, lambda m, width: (deep(m, "Q", "Q", (width, *CUBE)),)),
    "layers of peers": ("cuMemcpy3DPeer", 1024, lambda m, width: (deep(m, "P", "Q", (width, *CUBE)),)),
    "several lines": (
        "cuMemcpyBatchAsync_v2",
        2,
        lambda m, size: (
            *(some(m.device, m.other), some(m.host, m.host), some(size, size)),
            *(2, ATTRIBUTES, some(0), 1),
        ),
    ),
    "several boxes": (
        "cuMemcpy3DBatchAsync_v2",
        2048,
        lambda m, width: (2, operation(m, width, *CUBE) + operation(m, width, *CUBE)[1:], 0),
    ),
}
"""A call, how many bytes an element of its size stands for, and its arguments but for the stream."""


@pytest.mark.parametrize("edge", EDGES)
def test_a_mebibyte_waits_at_the_gate_and_what_is_less_goes_by(lessor: Lessor, edge: str):
    """In whatever shape it is moved: all of its rows, layers and lines count."""
    symbol, element, make = EDGES[edge]
    with lessor, Shell(lessor.tenant).begin() as shell:
        lessor.open(window_us=8000)
        memory = memory_in(shell)
        lessor.close()
        stream = [shell.ok("cuStreamCreate", OUT, 1)] if "Async" in symbol else []
        shell.ok(symbol, *make(memory, MIB // element - 1), *stream)
        assert lessor.works() == []
        shell.say(" ".join(map(str, (symbol, *make(memory, MIB // element), *stream))))
        wait_for(lambda: lessor.works() == [Work.WAITING], "the call at the gate")
        lessor.open(window_us=8000)
        assert shell.hear().split()[0] == "0"


def test_what_is_small_goes_by(lessor: Lessor):
    """Below a MiB nothing is held up, and nothing in flight is left without an event by a call that waits."""
    with lessor, Shell(lessor.tenant).begin() as shell:
        lessor.open()
        memory = memory_in(shell)
        lessor.close()
        for name, target, source in (
            ("HtoD", "device", "host"),
            ("DtoH", "host", "device"),
            ("DtoD", "device", "other"),
        ):
            shell.ok(f"cuMemcpy{name}_v2", getattr(memory, target), getattr(memory, source), MIB - 1)
        shell.ok("cuMemsetD8_v2", memory.device, 0, MIB - 1)
        assert lessor.works() == []


@pytest.mark.parametrize("current", ["the other card's", "another of the same card"])
@pytest.mark.parametrize("symbol", ["cuMemcpyDtoDAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemsetD8Async"])
def test_a_copy_in_a_stream_of_another_context_is_counted_where_it_is_made(
    machine: SimMachine, tenant: Callable[..., Tenant], symbol: str, current: str
):
    """The driver lets it go into any stream of the process, whatever context is current; that one is so still."""
    limits = [
        CardLimit(card.uuid, 1 << 30, core_share_bp=3000, core_most_percent=30) for card in machine.cards
    ]
    own = tenant(limits=limits)
    with Shell(own).begin() as shell:
        memory = memory_in(shell)
        stream = shell.ok("cuStreamCreate", OUT, 1)
        card = shell.ok("cuDeviceGet", OUT, int(current == "the other card's"))
        other = shell.ok("cuCtxCreate_v2", OUT, 0, card)
        shell.ok(symbol, *arguments(symbol, memory, stream))
        wait_for(lambda: own.usage().cards[0].busy_ns > 0, "its time", 5)
        assert own.usage().cards[1].busy_ns == 0
        assert shell.ok("cuCtxGetCurrent", OUT) == other
