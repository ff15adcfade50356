"""How many connections a server takes, of one address and of all."""

import asyncio
import socket
import time
from collections.abc import Callable

from aliquot.server.connection_limits import ConnectionLimits, Door, doors, is_local


async def tries(door: Door, count: int, source: str = "127.0.0.1") -> list[socket.socket]:
    """So many connections from an address, each until the server has taken it or sent it away."""
    made = []
    for _ in range(count):
        one = socket.socket()
        one.bind((source, 0))
        one.settimeout(0)
        await asyncio.get_running_loop().sock_connect(one, door.getsockname())
        made.append(one)
    return made


async def is_open(one: socket.socket) -> bool:
    """Whether the server has greeted a connection; it closes those that are too many."""
    greeted: bytes = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(one, 1), 10)
    return bool(greeted)


class Greeter(asyncio.Protocol):
    """Says a letter to whoever is let in."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"x")


def scene(crowd: ConnectionLimits, play: Callable[[Door], "asyncio.Future[None]"]) -> None:
    """Play while a server greets."""

    async def run() -> None:
        (door,) = doors("127.0.0.1", 0, crowd)
        server = await asyncio.get_running_loop().create_server(Greeter, sock=door)
        async with server:
            await play(door)

    asyncio.run(run())


async def counted(crowd: ConnectionLimits, size: int) -> None:
    """Wait until so many are counted."""
    end = time.monotonic() + 10
    while crowd.size != size:
        assert time.monotonic() < end, f"{crowd.size} are counted"
        await asyncio.sleep(0.01)


def test_one_address_has_so_many_and_room_again_when_one_leaves():
    """Counted from accept to close, whoever closes."""
    crowd = ConnectionLimits(per_peer=3)

    async def play(door: Door) -> None:
        made = await tries(door, 5)
        assert [await is_open(one) for one in made] == [True, True, True, False, False]
        made[0].close()
        await counted(crowd, 2)
        (again,) = await tries(door, 1)
        assert await is_open(again)
        (other,) = await tries(door, 1, "127.0.0.2")
        assert await is_open(other)

    scene(crowd, play)


def test_all_strangers_have_so_many_and_who_is_spared_comes_in():
    """A crowd of strangers keeps nobody on the same machine out."""
    crowd = ConnectionLimits(per_peer=10, in_all=2, spared=lambda peer: peer == "127.0.0.1")

    async def play(door: Door) -> None:
        strangers = [*await tries(door, 1, "127.0.0.2"), *await tries(door, 1, "127.0.0.3")]
        assert [await is_open(one) for one in strangers] == [True, True]
        (third,) = await tries(door, 1, "127.0.0.4")
        assert not await is_open(third)
        local = await tries(door, 4)
        assert [await is_open(one) for one in local] == [True] * 4
        strangers[0].close()
        await counted(crowd, 5)
        (fourth,) = await tries(door, 1, "127.0.0.4")
        assert await is_open(fourth)

    scene(crowd, play)


def test_what_is_local():
    """As addresses are written, also of IPv4 in IPv6."""
    local = ("127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1")
    assert [is_local(address) for address in (*local, "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "")] == [
        *[True] * 4,
        *[False] * 4,
    ]


def test_all_addresses_are_listened_on():
    """Without a host, on IPv4, and on IPv6 where there is any."""
    opened = doors(None, 0, ConnectionLimits())
    try:
        assert socket.AF_INET in {door.family for door in opened}
    finally:
        for door in opened:
            door.close()
