"""What cards this node has, read from NVML.

Everything the agent asks of the driver goes through the `Nvml` protocol. The calls block, some of them for
seconds on a busy driver, so callers run them in a thread of their own, and a driver that hangs is an error after
some seconds; one NVML session is kept for the process's life.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from aliquot.api.links import Link
from aliquot.crds.gpu_node import MigInstance
from aliquot.plugin.devices.links import LinkReader
from aliquot.plugin.devices.mig import read_instances
from aliquot.plugin.devices.nvml_timeout import NoAnswerError, NvmlTimeout

log = logging.getLogger(__name__)

MIB = 1 << 20
NUMA_MASK_WORDS = 16
BITS_PER_WORD = 64
AFFINITY_SCOPE_NODE = 0
ANSWER_S = 10.0


class CardsError(Exception):
    """The driver cannot say what cards there are; names its own error."""


class SessionOverError(CardsError):
    """The driver is not the one that this process has loaded, or no longer there: only another process can ask it."""


@dataclass(frozen=True)
class Card:
    """One physical card as the driver describes it.

    `memory_mib` is what applications can have: the driver's own reservation is left out. `numa_node` is -1
    where the machine does not say. `links` are those to the cards that are listed before it.
    """

    uuid: str
    index: int
    minor: int
    model: str
    memory_mib: int
    numa_node: int
    bus_id: str
    mig_enabled: bool = False
    mig: tuple[MigInstance, ...] = ()
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Utilization:
    """That a process, by its pid on this machine, kept a card busy for this part (0 to 1) of a while until `until_us`.

    The driver's clock; a sample begins where the one before it ended.
    """

    pid: int
    busy: float
    until_us: int


@dataclass(frozen=True)
class CardEvent:
    """Something the driver reported: `uuid` is empty where it could not say of which card; `xid` 0 is ECC."""

    uuid: str
    xid: int
    gi: int | None = None
    ci: int | None = None


class Nvml(Protocol):
    """All that this agent wants of NVML. Every method may block; every one raises CardsError."""

    def cards(self) -> tuple[Card, ...]:
        """Every card of the node, by index."""

    def memory_used(self, uuid: str) -> int:
        """Bytes in use on a card or MIG instance, by whoever."""

    def processes(self, uuid: str) -> dict[int, int]:
        """Bytes by process on a card, by the pid on this machine; what the driver cannot tell is left out."""

    def utilization(self, uuid: str, since_us: int) -> tuple[Utilization, ...]:
        """Samples of the processes that kept a card busy after a moment of the driver's clock."""

    def next_event(self, timeout_ms: int) -> CardEvent | None:
        """The next health event of any card, or None when the time is over."""

    def close(self) -> None:
        """Ends the session."""


class PyNvml:
    """The real thing, through NVIDIA's own Python client and whichever libnvidia-ml.so.1 the loader finds."""

    def __init__(self, answer_s: float = ANSWER_S) -> None:
        """`answer_s`: how long an answer is waited for before a card counts as one that does not answer."""
        import pynvml

        self._nvml: Any = pynvml
        self._patience = NvmlTimeout(answer_s)
        self._over = (pynvml.NVMLError_LibRmVersionMismatch, pynvml.NVMLError_DriverNotLoaded)
        self._events: Any = None
        self._last: dict[int, Card] = {}
        self._links = LinkReader(pynvml)
        with self._faults("NVML does not start"):
            pynvml.nvmlInit()

    def close(self) -> None:
        """Ends the session; later calls fail."""
        self._nvml.nvmlShutdown()

    def cards(self) -> tuple[Card, ...]:
        """Every card of the node, by index; one that does not answer as it was when it last did, if it did."""
        with self._faults("NVML cannot list cards"):
            count = self._patience.ask("the list of cards", self._nvml.nvmlDeviceGetCount)
        cards = [card for index in range(count) if (card := self._card_or_last(index))]
        links = self._links_of([card.uuid for card in cards])
        return tuple(replace(card, links=tuple(found)) for card, found in zip(cards, links, strict=True))

    def memory_used(self, uuid: str) -> int:
        """Bytes in use on a card or MIG instance, by whoever; the driver's own reservation is not counted."""
        with self._faults(f"card {uuid}"):
            return self._patience.ask(uuid, lambda: int(self._memory(self._handle(uuid)).used))

    def processes(self, uuid: str) -> dict[int, int]:
        """Bytes that each process has on a card, by its pid on this machine."""
        with self._faults(f"card {uuid}"):
            found = self._patience.ask(
                uuid, lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle(uuid))
            )
        return {one.pid: one.usedGpuMemory for one in found if one.usedGpuMemory is not None}

    def utilization(self, uuid: str, since_us: int) -> tuple[Utilization, ...]:
        """Samples of the processes that kept a card busy after a moment of the driver's clock."""
        with self._faults(f"card {uuid}"):
            try:
                found = self._patience.ask(
                    uuid, lambda: self._nvml.nvmlDeviceGetProcessUtilization(self._handle(uuid), since_us)
                )
            except self._nvml.NVMLError_NotFound:  # nobody worked
                return ()
        return tuple(Utilization(one.pid, one.smUtil / 100, one.timeStamp) for one in found)

    def next_event(self, timeout_ms: int) -> CardEvent | None:
        """The next health event of any card; the first call subscribes to them."""
        with self._faults("NVML reports no events"):
            try:
                return self._patience.ask("events", lambda: self._await_event(timeout_ms))
            except self._nvml.NVMLError_Timeout:
                return None

    @contextlib.contextmanager
    def _faults(self, what: str) -> Iterator[None]:
        """Has what the driver says, or its silence, raised as our own errors."""
        try:
            yield
        except self._over as error:
            raise SessionOverError(f"{what}: {error}") from error
        except (self._nvml.NVMLError, NoAnswerError) as error:
            raise CardsError(f"{what}: {error}") from error

    def _handle(self, uuid: str) -> Any:
        return self._nvml.nvmlDeviceGetHandleByUUID(uuid)

    def _links_of(self, uuids: list[str]) -> list[list[Link]]:
        """Links as they are, or, where the driver hangs, as they were."""
        try:
            return self._patience.ask("links", lambda: self._links.read(uuids))
        except NoAnswerError as error:
            log.warning("links between cards stay as they were: %s", error)
            return self._links.known(uuids)

    def _await_event(self, timeout_ms: int) -> CardEvent:
        self._events = self._events or self._subscribe()
        return self._read_event(self._nvml.nvmlEventSetWait_v2(self._events, timeout_ms))

    def _card_or_last(self, index: int) -> Card | None:
        """One card. A lost one must not take the others with it, nor what its tenants hold."""
        try:
            self._last[index] = self._patience.ask(f"card {index}", lambda: self._card(index))
        except (self._nvml.NVMLError, NoAnswerError) as error:
            if index not in self._last:
                log.error("card %d is left out, it does not answer: %s", index, error)  # noqa: TRY400
        return self._last.get(index)

    def _card(self, index: int) -> Card:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        mig_enabled = self._mig_enabled(handle)
        return Card(
            uuid=nvml.nvmlDeviceGetUUID(handle),
            index=index,
            minor=nvml.nvmlDeviceGetMinorNumber(handle),
            model=nvml.nvmlDeviceGetName(handle),
            memory_mib=self._memory_mib(handle),
            numa_node=self._numa_node(handle),
            bus_id=nvml.nvmlDeviceGetPciInfo(handle).busId,
            mig_enabled=mig_enabled,
            mig=read_instances(nvml, handle) if mig_enabled else (),
        )

    def _memory(self, handle: Any) -> Any:
        """Memory by the newer call, which tells the driver's reservation apart, else by the older."""
        nvml = self._nvml
        try:
            return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return nvml.nvmlDeviceGetMemoryInfo(handle)

    def _memory_mib(self, handle: Any) -> int:
        """Total less the driver's reservation, where the driver tells it."""
        memory = self._memory(handle)
        return int(memory.total - getattr(memory, "reserved", 0)) // MIB

    def _mig_enabled(self, handle: Any) -> bool:
        nvml = self._nvml
        try:
            return bool(nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return False

    def _numa_node(self, handle: Any) -> int:
        """The first NUMA node the card is close to."""
        nvml = self._nvml
        try:
            words = nvml.nvmlDeviceGetMemoryAffinity(handle, NUMA_MASK_WORDS, AFFINITY_SCOPE_NODE)
        except nvml.NVMLError:
            return -1
        mask = sum(int(word) << (BITS_PER_WORD * place) for place, word in enumerate(words))
        return (mask & -mask).bit_length() - 1

    def _subscribe(self) -> Any:
        nvml = self._nvml
        events = nvml.nvmlEventSetCreate()
        wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        for index in range(nvml.nvmlDeviceGetCount()):
            # A card that is lost cannot be followed; the others can.
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                supported = nvml.nvmlDeviceGetSupportedEventTypes(handle)
                nvml.nvmlDeviceRegisterEvents(handle, supported & wanted, events)
        return events

    def _read_event(self, data: Any) -> CardEvent:
        nvml = self._nvml
        try:
            uuid = nvml.nvmlDeviceGetUUID(data.device)
        except nvml.NVMLError:
            uuid = ""
        is_xid = data.eventType & nvml.nvmlEventTypeXidCriticalError
        return CardEvent(uuid=uuid, xid=int(data.eventData) if is_xid else 0)
