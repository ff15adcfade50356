"""A tracker tells of everything that changes, and keeps next to nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.backoff import Backoff
from aliquot.kube.objects import Pod
from aliquot.kube.resources import PODS
from aliquot.kube.tracker import RestoredError, Tracker

Kube = Any  # the server of conftest.py


class Listener:
    """What the handlers of a tracker were told."""

    def __init__(self, api: Api) -> None:
        self.told: list[tuple[str, str]] = []
        backoff = Backoff(first=0.01, most=0.05)
        self.others: list[str] = []
        self.tracker = Tracker(
            api, PODS, on_put=self._put, on_gone=self._gone, others=lambda: self.others, backoff=backoff
        )
        self.spoilt = ""

    def _put(self, pod: Pod) -> None:
        self.told.append(("put", pod.metadata.uid))
        assert pod.metadata.uid != self.spoilt

    def _gone(self, uid: str) -> None:
        self.told.append(("gone", uid))
        assert uid != self.spoilt


@asynccontextmanager
async def tracking(kube: Kube) -> AsyncIterator[Listener]:
    """Run a tracker until the end of the `with`; it must not have died by then."""
    async with kube, Api(Access(kube.url)) as api:
        listener = Listener(api)
        task = asyncio.create_task(listener.tracker.run())
        try:
            await kube.until(lambda: len(kube.watches) > 0)
            yield listener
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def play(kube: Kube, scene: Callable[[Listener], Coroutine[Any, Any, None]]) -> None:
    """Run a scene against a server that has the pods a and b."""
    kube.put("a")
    kube.put("b")

    async def run() -> None:
        async with tracking(kube) as listener:
            await scene(listener)

    asyncio.run(run())


def test_it_tells_of_what_is_there_and_of_every_change(kube: Kube):
    """By UID; what has changed is told whole."""

    async def scene(listener: Listener) -> None:
        assert listener.told == [("put", "uid-a"), ("put", "uid-b")]
        kube.put("a", phase="Running")
        kube.remove("b")
        await kube.until(lambda: len(listener.told) == 4)
        assert listener.told[2:] == [("put", "uid-a"), ("gone", "uid-b")]
        assert len(listener.tracker) == 1

    play(kube, scene)


def test_after_a_break_it_tells_only_of_what_differs(kube: Kube):
    """The server has forgotten what happened meanwhile; a pod that was made anew under its name is another."""

    async def scene(listener: Listener) -> None:
        await kube.stop()
        kube.put("a", phase="Running")
        kube.remove("b")
        kube.put("b", uid="uid-b2")
        kube.put("c")
        kube.forget()
        await kube.start()
        await kube.until(lambda: len(listener.told) == 6)
        assert sorted(listener.told[2:]) == [
            ("gone", "uid-b"),
            ("put", "uid-a"),
            ("put", "uid-b2"),
            ("put", "uid-c"),
        ]
        await kube.until(lambda: kube.opened == 2)
        await kube.stop()
        kube.put("d")
        kube.forget()
        await kube.start()
        await kube.until(lambda: len(listener.told) == 7)
        assert listener.told[6:] == [("put", "uid-d")]
        assert kube.lists == 3

    play(kube, scene)


def test_what_came_and_went_during_a_break_is_told_to_be_gone(kube: Kube):
    """The handlers have heard of it elsewhere; what they hear of while the list is read may be later than the list."""

    async def scene(listener: Listener) -> None:
        listener.others = ["uid-a", "uid-fleeting"]
        await kube.stop()
        kube.version += 1
        kube.forget()
        kube.before_page = lambda _: listener.others.extend(["uid-late"] if kube.lists == 2 else ())
        await kube.start()
        await kube.until(lambda: kube.opened == 2)
        assert listener.told[2:] == [("gone", "uid-fleeting")]
        assert "uid-late" in listener.others

    play(kube, scene)


def test_a_handler_that_raises_harms_nobody(kube: Kube, caplog: pytest.LogCaptureFixture):
    """The error is logged with the object's name, and what follows is told."""

    async def scene(listener: Listener) -> None:
        listener.spoilt = "uid-bad"
        kube.put("bad")
        kube.remove("bad")
        kube.put("good")
        await kube.until(lambda: ("put", "uid-good") in listener.told)

    play(kube, scene)
    assert "handler of pods ns/bad failed" in caplog.text
    assert "handler of pods uid-bad failed" in caplog.text


def test_it_can_be_waited_for_until_it_knows_a_version(kube: Kube):
    """What it has reached is there at once; what it has not takes an event or a bookmark of that version."""

    async def scene(listener: Listener) -> None:
        reach = listener.tracker.reach
        await asyncio.wait_for(reach(kube.version), 3)
        waits = [asyncio.create_task(reach(kube.version + n)) for n in (1, 2)]
        kube.put("c")
        await asyncio.wait_for(waits[0], 3)
        assert ("put", "uid-c") in listener.told
        assert not waits[1].done()
        kube.version += 1
        kube.send("BOOKMARK", {"metadata": {"resourceVersion": str(kube.version)}})
        await asyncio.wait_for(waits[1], 3)

    play(kube, scene)


def test_after_a_backup_nothing_is_told_any_more(kube: Kube):
    """Without a copy it cannot say what has changed: all begins anew."""

    async def run() -> None:
        async with kube, Api(Access(kube.url)) as api:
            kube.put("a")
            kube.put("b")
            listener = Listener(api)
            task = asyncio.create_task(listener.tracker.run())
            await kube.until(lambda: len(kube.watches) > 0)
            kube.restore(1, "a")
            with pytest.raises(RestoredError, match="fewer versions of pods"):
                await asyncio.wait_for(task, 3)
            assert listener.told == [("put", "uid-a"), ("put", "uid-b")]

    asyncio.run(run())


def test_the_version_of_now_is_read_without_reading_all(kube: Kube):
    """One object is asked for, and no version: the server has to look."""

    async def run() -> None:
        async with kube, Api(Access(kube.url)) as api:
            kube.put("a")
            kube.put("b")
            assert await api.version(PODS) == str(kube.version)
            kube.remove("b")
            assert await api.version(PODS) == str(kube.version)
            assert kube.pages == [("1", ""), ("1", "")]

    asyncio.run(run())
