"""Memory that processes of a simulated machine share: who pays for it, how long it lives."""

import signal
from collections.abc import Callable

import pytest

from aliquot.sandbox.gpus import SimMachine
from tests.native.pairs import PROGRAM, Pair
from tests.native.sims import run_python

EXPORTER = """
handle = create(64, {kind})
address = mapped(handle, 64)
check(cuda.cuMemcpyHtoD(address, b"hello", 5))
exported = check(cuda.cuMemExportToShareableHandle(handle, {kind}, 0))
{send}
say("sent"); wait()
check(cuda.cuMemUnmap(address, 64 * MIB)); check(cuda.cuMemRelease(handle))
say("released"); wait()
"""
IMPORTER = """
{receive}
handle = check(cuda.cuMemImportFromShareableHandle(received, {kind}))
if isinstance(received, int): os.close(received)
address = mapped(handle, 64)
check(cuda.cuMemRelease(handle))
say(text(address).decode()); wait()
check(cuda.cuMemUnmap(address, 64 * MIB))
say("unmapped"); wait()
"""
ROUTES = {
    "a file descriptor": ("FD", "send_fd(int(exported)); os.close(int(exported))", "received = receive_fd()"),
    "a fabric handle": (
        "FABRIC",
        "peer.sendall(bytes(exported.data))",
        "received = bytearray(peer.recv(64))",
    ),
}


def exchange(pair: Callable[[str, str], Pair], route: str) -> Pair:
    """Two programs that have the same 64 MiB."""
    kind, send, receive = ROUTES[route]
    both = pair(EXPORTER.format(kind=kind, send=send), IMPORTER.format(kind=kind, receive=receive))
    assert both.read(both.first) == "sent"
    assert both.read(both.second) == "hello"
    return both


@pytest.mark.parametrize("route", ROUTES)
def test_shared_memory_lives_until_the_last_lets_go(pair: Callable[[str, str], Pair], route: str):
    """Both see the same bytes, the card has them once, and the one that is left pays."""
    both = exchange(pair, route)
    assert both.held() == {"first": 64}
    both.go_on(both.first)
    assert both.read(both.first) == "released"
    assert both.held() == {"second": 64}
    both.go_on(both.second)
    assert both.read(both.second) == "unmapped"
    assert both.held() == {}


@pytest.mark.parametrize("victim", ["first", "second"])
def test_shared_memory_outlives_a_process_that_is_killed(pair: Callable[[str, str], Pair], victim: str):
    """Who is left has it; when both are gone it is free."""
    both = exchange(pair, "a file descriptor")
    dead, left = (both.first, both.second) if victim == "first" else (both.second, both.first)
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    assert both.held() == {"second" if victim == "first" else "first": 64}
    left.kill()
    left.wait()
    assert both.held() == {}


def test_a_file_keeps_its_memory_until_it_is_closed(machine: SimMachine):
    """However often its handle was released; what is imported from it then is the same memory."""
    program = """
handle = create(64)
address = mapped(handle, 64)
check(cuda.cuMemcpyHtoD(address, b"hello", 5))
file = int(check(cuda.cuMemExportToShareableHandle(handle, FD, 0)))
check(cuda.cuMemUnmap(address, 64 * MIB)); check(cuda.cuMemRelease(handle))
kept = used()
again = check(cuda.cuMemImportFromShareableHandle(file, FD))
address = mapped(again, 64)
print(kept, text(address).decode())
check(cuda.cuMemUnmap(address, 64 * MIB)); check(cuda.cuMemRelease(again))
print(used())
os.close(file)
print(used())
"""
    assert run_python(machine, PROGRAM + program).split() == ["64", "hello", "64", "0"]


def test_only_memory_made_for_it_is_exported(machine: SimMachine):
    """Without the type asked for at its making it is an invalid value; so is a file that is no memory."""
    program = """
print(*[int(answer[0]) for answer in (
    cuda.cuMemExportToShareableHandle(create(2, Kind(0)), FD, 0),
    cuda.cuMemExportToShareableHandle(create(2), FABRIC, 0),
    cuda.cuMemExportToShareableHandle(create(2), FD, 1),
    cuda.cuMemImportFromShareableHandle(0, FD), cuda.cuMemImportFromShareableHandle(999, FD),
)])
"""
    assert run_python(machine, PROGRAM + program).split() == ["1"] * 5


def test_importing_in_the_exporting_process_costs_nothing_more(machine: SimMachine):
    """Two handles to one memory, which is free when both are released."""
    program = """
handle = create(64)
fd = int(check(cuda.cuMemExportToShareableHandle(handle, FD, 0)))
again = check(cuda.cuMemImportFromShareableHandle(fd, FD))
os.close(fd)
print(used())
check(cuda.cuMemRelease(handle)); print(used())
check(cuda.cuMemRelease(again)); print(used())
"""
    assert run_python(machine, PROGRAM + program).split() == ["64", "64", "0"]


MULTICAST = """
prop = cuda.CUmulticastObjectProp()
prop.numDevices, prop.size = 1, 64 * MIB
def bind(handle, size=64):
    return cuda.cuMulticastBindMem(object, 0, handle, 0, size * MIB, 0)
object = check(cuda.cuMulticastCreate(prop))
handle = create(64)
print(int(bind(handle)[0]))
check(cuda.cuMulticastAddDevice(object, 0))
print(int(bind(handle, 128)[0]), int(bind(handle)[0]), used())
check(cuda.cuMemRelease(handle)); print(used())
mapped(object, 64)
check(cuda.cuMulticastUnbind(object, 0, 0, 64 * MIB)); print(used())
print(int(cuda.cuMulticastUnbind(object, 0, 0, 64 * MIB)[0]))
"""


def test_memory_bound_to_a_multicast_object_stays_in_use(machine: SimMachine):
    """The object costs nothing; what is bound lives until it is unbound."""
    assert run_python(machine, PROGRAM + MULTICAST).split() == ["101", "1", "0", "64", "64", "0", "1"]
