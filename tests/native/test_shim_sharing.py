"""Memory that crosses processes is charged once, to whoever of the tenant has it, and never to nobody."""

import os
import random
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.shells import OUT, OUT_OF_MEMORY, SUCCESS, Shell, program, two_cards
from tests.native.sims import wait_for
from tests.native.tenants import Tenant, used

MIB = 1 << 20
LIMIT, PART = 64 * MIB, 24 * MIB
PINNED, DEVICE, FILE, FABRIC = 1, 1, 1, 8

TenantMaker = Callable[..., Tenant]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> SimMachine:
    """One machine for all tests of this module."""
    return two_cards(tmp_path_factory.mktemp("machine"))


def shareable(kind: int = FILE, device: int = 0) -> str:
    """CUmemAllocationProp of memory on a device that may be exported."""
    return "x" + struct.pack("<iiii16x", PINNED, kind, DEVICE, device).hex()


def on_card(tenant: Tenant) -> int:
    """What the card says is in use by everybody."""
    return tenant.machine.memory_used(tenant.machine.cards[0].uuid)


class Party(Shell):
    """A process at one end of a socket."""

    def __init__(self, tenant: Tenant, end: socket.socket) -> None:
        """Starts it with a context."""
        super().__init__(tenant, files=[end.fileno()])
        self.end = end.fileno()
        self.begin()

    def export(self, size: int = PART) -> int:
        """Makes memory and sends it as a file; returns its handle."""
        handle = self.ok("cuMemCreate", OUT, size, shareable(), 0)
        file = self.ok("cuMemExportToShareableHandle", OUT, handle, FILE, 0)
        assert self.ask(f".send {self.end} {file}") == "0"
        self.ok("close", file)
        return handle

    def imported(self) -> int:
        """Takes memory from the socket; returns its handle."""
        file = int(self.ask(f".receive {self.end}"))
        handle = self.ok("cuMemImportFromShareableHandle", OUT, file, FILE)
        self.ok("close", file)
        return handle

    def map(self, handle: int, size: int = PART) -> tuple[int, int]:
        """Maps memory; the status, and where."""
        address = self.ok("cuMemAddressReserve", OUT, size, 0, 0, 0)
        return self.call("cuMemMap", address, size, 0, handle, 0)[0], address


@contextmanager
def parties(first: Tenant, second: Tenant) -> Iterator[tuple[Party, Party]]:
    """A process of each tenant, with a socket between them."""
    one, two = socket.socketpair()
    with one, two, Party(first, one) as a, Party(second, two) as b:
        yield a, b


def test_memory_is_charged_once_within_a_tenant(tenant: TenantMaker):
    """The importer pays nothing, and what it does with the memory changes nothing."""
    slice_ = tenant(LIMIT)
    with parties(slice_, slice_) as (exporter, importer):
        theirs = exporter.export()
        handle = importer.imported()
        status, address = importer.map(handle)
        assert status == SUCCESS
        importer.ok("cuMemRelease", handle)
        assert used(slice_) == on_card(slice_) == PART
        importer.ok("cuMemAlloc_v2", OUT, LIMIT - PART)
        importer.ok("cuMemUnmap", address, PART)
        assert used(slice_) == on_card(slice_) == LIMIT
        exporter.ok("cuMemRelease", theirs)
        assert used(slice_) == on_card(slice_) == LIMIT - PART


def test_memory_that_its_exporter_has_released_stays_charged_while_others_have_it(tenant: TenantMaker):
    """It is given back when the last of them has closed it and the exporter needs memory."""
    slice_ = tenant(LIMIT)
    with parties(slice_, slice_) as (exporter, importer):
        theirs = exporter.export()
        handle = importer.imported()
        exporter.ok("cuMemRelease", theirs)
        assert used(slice_) == on_card(slice_) == PART
        assert exporter.call("cuMemAlloc_v2", OUT, LIMIT)[0] == OUT_OF_MEMORY
        importer.ok("cuMemRelease", handle)
        assert on_card(slice_) == 0
        exporter.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert used(slice_) == LIMIT


def test_memory_that_was_given_back_before_it_was_imported_is_charged_to_its_importer(tenant: TenantMaker):
    """Only a file kept it, and the exporter pays for it no more, whatever else it has exported."""
    slice_ = tenant(LIMIT)
    with parties(slice_, slice_) as (exporter, importer):
        exporter.export(2 * MIB)
        exporter.ok("cuMemRelease", exporter.export())
        importer.imported()
        handle = importer.imported()
        assert importer.map(handle)[0] == SUCCESS
        assert used(slice_) == on_card(slice_) == PART + 2 * MIB


@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_memory_of_a_dead_exporter_stays_charged_while_others_have_it(tenant: TenantMaker, end: int | None):
    """Killed or ended in order: what it alone had is free, what it had shared is not until the importer is gone."""
    slice_ = tenant(LIMIT)
    with parties(slice_, slice_) as (exporter, importer), Shell(slice_).begin() as third:
        exporter.export()
        exporter.ok("cuMemAlloc_v2", OUT, 2 * MIB)
        handle = importer.imported()
        if end is None:
            exporter.say(".exit")
        else:
            exporter.process.send_signal(end)
        exporter.process.wait()
        assert third.call("cuMemAlloc_v2", OUT, LIMIT - PART + 2 * MIB)[0] == OUT_OF_MEMORY
        assert used(slice_) == on_card(slice_) == PART
        block = third.ok("cuMemAlloc_v2", OUT, LIMIT - PART)
        third.ok("cuMemFree_v2", block)
        if end is None:
            importer.ok("cuMemRelease", handle)
        else:
            importer.process.kill()
            importer.process.wait()
        third.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert used(slice_) == on_card(slice_) == LIMIT


def test_memory_of_another_tenant_is_charged_to_its_importer(tenant: TenantMaker):
    """Each pays for what it can keep alive; when the exporter is gone, the importer still does."""
    first, second = tenant(LIMIT), tenant(LIMIT)
    with parties(first, second) as (exporter, importer):
        exporter.export()
        handle = importer.imported()
        status, address = importer.map(handle)
        assert (status, used(first), used(second)) == (SUCCESS, PART, PART)
        exporter.process.kill()
        exporter.process.wait()
        importer.ok("cuMemRelease", handle)
        assert (used(second), on_card(second)) == (PART, PART)
        assert importer.call("cuMemAlloc_v2", OUT, LIMIT - PART + 1)[0] == OUT_OF_MEMORY
        importer.ok("cuMemUnmap", address, PART)
        assert (used(second), on_card(second)) == (0, 0)


def test_memory_of_another_tenant_that_does_not_fit_is_not_mapped(tenant: TenantMaker):
    """Not even by parts: the importer is charged as far as its mappings reach."""
    first, second = tenant(LIMIT), tenant(PART // 2)
    with parties(first, second) as (exporter, importer):
        exporter.export()
        handle = importer.imported()
        assert importer.map(handle)[0] == OUT_OF_MEMORY
        assert used(second) == 0
        assert importer.map(handle, PART // 2)[0] == SUCCESS
        assert used(second) == PART // 2


def test_memory_whose_exporter_died_before_it_was_imported_is_a_strangers(tenant: TenantMaker):
    """The dead exporter's charge ended with it; the importer takes it over."""
    slice_ = tenant(LIMIT)
    with parties(slice_, slice_) as (exporter, importer):
        exporter.export()
        exporter.process.kill()
        exporter.process.wait()
        handle = importer.imported()
        assert importer.map(handle)[0] == SUCCESS
        importer.call("cuMemAlloc_v2", OUT, LIMIT)
        assert used(slice_) == on_card(slice_) == PART


@pytest.mark.parametrize("same", [True, False])
def test_a_fabric_handle_says_whose_it_is(tenant: TenantMaker, same: bool):
    """Anybody may copy its 64 bytes."""
    first = tenant(LIMIT)
    second = first if same else tenant(LIMIT)
    with parties(first, second) as (exporter, importer):
        handle = exporter.ok("cuMemCreate", OUT, PART, shareable(FABRIC), 0)
        status, name = exporter.ask(f"cuMemExportToShareableHandle # {handle} {FABRIC} 0").split()
        assert status == "0"
        theirs = importer.ok("cuMemImportFromShareableHandle", OUT, "x" + name, FABRIC)
        assert importer.map(theirs)[0] == SUCCESS
        assert used(second) == on_card(second) == PART
        exporter.ok("cuMemRelease", handle)
        assert used(first) == (PART if same else 0)


def test_a_process_that_imports_its_own_memory_pays_once(tenant: TenantMaker):
    """By the file it has exported itself."""
    slice_ = tenant(LIMIT)
    with Shell(slice_).begin() as shell:
        handle = shell.ok("cuMemCreate", OUT, PART, shareable(), 0)
        file = shell.ok("cuMemExportToShareableHandle", OUT, handle, FILE, 0)
        again = shell.ok("cuMemImportFromShareableHandle", OUT, file, FILE)
        shell.ok("cuMemRelease", handle)
        assert used(slice_) == on_card(slice_) == PART
        shell.ok("cuMemRelease", again)
        shell.ok("close", file)
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert used(slice_) == on_card(slice_) == LIMIT


def name_of(shell: Shell, block: int) -> str:
    """The handle of legacy IPC for a block, in hex."""
    status, name = shell.ask(f"cuIpcGetMemHandle # {block}").split()
    assert status == "0"
    return name


def open_ipc(shell: Shell, entry: str, name: str) -> tuple[int, int]:
    """Opens such a handle: the status, and where the memory is."""
    status, address = map(int, shell.ask(f".ipc {entry} {name}").split())
    return status, address


@pytest.mark.parametrize("entry", ["cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2"])
def test_memory_opened_by_ipc_is_charged_once_within_a_tenant(tenant: TenantMaker, entry: str):
    """And when its exporter dies it stays charged until it is closed as often as it was opened."""
    slice_ = tenant(LIMIT)
    with Shell(slice_).begin() as exporter, Shell(slice_).begin() as importer:
        name = name_of(exporter, exporter.ok("cuMemAlloc_v2", OUT, PART))
        addresses = [open_ipc(importer, entry, name) for _ in range(2)]
        assert addresses[0] == addresses[1]
        assert addresses[0][0] == SUCCESS
        assert used(slice_) == on_card(slice_) == PART
        exporter.process.kill()
        exporter.process.wait()
        for _ in range(2):
            assert importer.call("cuMemAlloc_v2", OUT, LIMIT - PART + 1)[0] == OUT_OF_MEMORY
            assert used(slice_) == PART
            importer.ok("cuIpcCloseMemHandle", addresses[0][1])
        importer.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert used(slice_) == on_card(slice_) == LIMIT


@pytest.mark.parametrize("entry", ["cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2"])
def test_memory_of_another_tenant_opened_by_ipc_is_charged_to_its_importer(tenant: TenantMaker, entry: str):
    """Once however often it is opened; what does not fit is closed again."""
    first, second, small = tenant(LIMIT), tenant(LIMIT), tenant(PART - 1)
    with Shell(first).begin() as exporter, Shell(second).begin() as importer, Shell(small).begin() as poor:
        block = exporter.ok("cuMemAlloc_v2", OUT, PART)
        name = name_of(exporter, block)
        assert open_ipc(poor, entry, name)[0] == OUT_OF_MEMORY
        addresses = [open_ipc(importer, entry, name)[1] for _ in range(2)]
        assert (used(first), used(second), used(small)) == (PART, PART, 0)
        exporter.process.kill()
        exporter.process.wait()
        for address in addresses:
            assert used(second) == PART
            importer.ok("cuIpcCloseMemHandle", address)
        assert (used(second), on_card(second)) == (0, 0)


def test_memory_that_was_named_and_freed_is_forgotten_with_its_name(tenant: TenantMaker):
    """Of what a dead exporter had, only that is kept which others may still have."""
    slice_ = tenant(LIMIT)
    with Shell(slice_).begin() as exporter, Shell(slice_).begin() as other:
        block = exporter.ok("cuMemAlloc_v2", OUT, PART)
        name_of(exporter, block)
        exporter.ok("cuMemFree_v2", block)
        name = name_of(exporter, exporter.ok("cuMemAlloc_v2", OUT, 2 * MIB))
        assert open_ipc(other, "cuIpcOpenMemHandle_v2", name)[0] == SUCCESS
        exporter.ok("cuMemAlloc_v2", OUT, PART)
        exporter.process.kill()
        exporter.process.wait()
        other.ok("cuMemAlloc_v2", OUT, LIMIT - 2 * MIB)
        assert used(slice_) == LIMIT


def external(file: int, size: int) -> str:
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC of a file."""
    return "x" + struct.pack("<iiiiQQ72x", 1, 0, file, 0, 0, size).hex()


def test_memory_of_other_apis_is_charged_until_it_is_destroyed(tenant: TenantMaker):
    """By the size that the program says; beyond the slice it is not imported."""
    slice_ = tenant(LIMIT)
    with Shell(slice_).begin() as shell:
        file = shell.call("memfd_create", "sgraphics", 0)[0]
        shell.ok("ftruncate", file, LIMIT * 2)
        assert shell.call("cuImportExternalMemory", OUT, external(file, LIMIT + 2 * MIB))[0] == OUT_OF_MEMORY
        memory = shell.ok("cuImportExternalMemory", OUT, external(file, PART))
        assert used(slice_) == on_card(slice_) == PART
        shell.ok("cuDestroyExternalMemory", memory)
        assert used(slice_) == on_card(slice_) == 0


def test_external_memory_that_is_the_tenants_own_is_charged_once(tenant: TenantMaker):
    """The file may be one that CUDA has exported."""
    slice_ = tenant(LIMIT)
    with Shell(slice_).begin() as shell:
        handle = shell.ok("cuMemCreate", OUT, PART, shareable(), 0)
        file = shell.ok("cuMemExportToShareableHandle", OUT, handle, FILE, 0)
        memory = shell.ok("cuImportExternalMemory", OUT, external(file, PART))
        shell.ok("cuMemRelease", handle)
        assert used(slice_) == on_card(slice_) == PART
        shell.ok("cuDestroyExternalMemory", memory)
        shell.ok("cuMemAlloc_v2", OUT, LIMIT)
        assert used(slice_) == on_card(slice_) == LIMIT


def multicast(size: int) -> str:
    """CUmulticastObjectProp for one device."""
    return "x" + struct.pack("<I4xQQQ", 1, size, 0, 0).hex()


BINDS: dict[str, Callable[[Shell, int, int, int], tuple[int, ...]]] = {
    "cuMulticastBindMem": lambda s, o, h, _: s.call("cuMulticastBindMem", o, 0, h, 0, PART, 0),
    "cuMulticastBindMem_v2": lambda s, o, h, _: s.call("cuMulticastBindMem_v2", o, 0, 0, h, 0, PART, 0),
    "cuMulticastBindAddr": lambda s, o, _, a: s.call("cuMulticastBindAddr", o, 0, a, PART, 0),
    "cuMulticastBindAddr_v2": lambda s, o, _, a: s.call("cuMulticastBindAddr_v2", o, 0, 0, a, PART, 0),
}


@pytest.mark.parametrize("end", ["unbound", "released"])
@pytest.mark.parametrize("bind", BINDS)
def test_memory_bound_to_a_multicast_object_stays_charged(tenant: TenantMaker, bind: str, end: str):
    """Until it is unbound, or the object is gone."""
    slice_ = tenant(LIMIT)
    with Shell(slice_).begin() as shell:
        handle = shell.ok("cuMemCreate", OUT, PART, shareable(0), 0)
        address = shell.ok("cuMemAddressReserve", OUT, PART, 0, 0, 0)
        shell.ok("cuMemMap", address, PART, 0, handle, 0)
        object_ = shell.ok("cuMulticastCreate", OUT, multicast(PART))
        shell.ok("cuMulticastAddDevice", object_, 0)
        assert BINDS[bind](shell, object_, handle, address)[0] == SUCCESS
        shell.ok("cuMemUnmap", address, PART)
        shell.ok("cuMemRelease", handle)
        assert used(slice_) == on_card(slice_) == PART
        if end == "unbound":
            shell.ok("cuMulticastUnbind", object_, 0, 0, PART)
        else:
            shell.ok("cuMemRelease", object_)
        assert used(slice_) == on_card(slice_) == 0


def test_handles_in_many_threads_leave_nothing(tenant: TenantMaker):
    """Mapped, released, retained, exported and imported in any order: in the end account and card are empty."""
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    slice_ = tenant(LIMIT)
    command = [program("handle_storm"), str(seed), "6", "400"]
    storm = subprocess.Popen(
        command, env=slice_.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert storm.stdout is not None
    answer = storm.stdout.readline()
    left = used(slice_), on_card(slice_), slice_.usage().cards[0].memory_peak_bytes <= LIMIT
    storm.communicate(timeout=60)
    assert (answer, storm.returncode, left) == ("done\n", 0, (0, 0, True))


def test_processes_that_are_killed_while_they_share_leave_nothing(tenant: TenantMaker):
    """Exporters and importers die in any order; what lives is charged, and in the end nothing is."""
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    chance = random.Random(seed)
    slice_ = tenant(LIMIT)
    with Shell(slice_).begin() as witness:
        for _ in range(8):
            with parties(slice_, slice_) as (exporter, importer):
                theirs = exporter.export(chance.choice([2, 8, 24]) * MIB)
                handle = importer.imported()
                if chance.random() < 0.5:
                    exporter.ok("cuMemRelease", theirs)
                if chance.random() < 0.3:
                    importer.ok("cuMemRelease", handle)
                for victim in chance.sample([exporter, importer], 2):
                    victim.process.kill()
                    victim.process.wait()
                    witness.call("cuMemAlloc_v2", OUT, LIMIT + 1)
                    assert on_card(slice_) <= used(slice_)
            witness.ok("cuMemFree_v2", witness.ok("cuMemAlloc_v2", OUT, LIMIT))
        wait_for(lambda: used(slice_) == on_card(slice_) == 0, "the dead to be forgotten")
