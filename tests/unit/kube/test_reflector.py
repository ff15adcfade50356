"""The reflector's copy stays true through everything an API server does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from aliquot.kube.access import Access
from aliquot.kube.api import Api
from aliquot.kube.backoff import Backoff
from aliquot.kube.objects import Pod
from aliquot.kube.reflector import Reflector
from aliquot.kube.resources import PODS

Kube = Any  # the server of conftest.py


class Watcher:
    """A reflector and what its handlers were told."""

    def __init__(self, api: Api, backoff: Backoff) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.reflector = Reflector(
            api,
            PODS,
            on_add=lambda new: self._tell("add", new),
            on_update=lambda _, new: self._tell("update", new),
            on_delete=lambda old: self._tell("delete", old),
            backoff=backoff,
        )

    def _tell(self, what: str, pod: Pod) -> None:
        self.told.append((what, pod.metadata.name, pod.metadata.uid))

    @property
    def names(self) -> set[str]:
        """Return the keys of the copy."""
        return set(self.reflector.store)


@asynccontextmanager
async def watching(kube: Kube, backoff: Backoff | None = None) -> AsyncIterator[Watcher]:
    """Run a reflector until the end of the `with`; it must not have died by then."""
    async with Api(Access(kube.url)) as api:
        watcher = Watcher(api, backoff or Backoff(first=0.01, most=0.05))
        task = asyncio.create_task(watcher.reflector.run())
        try:
            await asyncio.wait_for(watcher.reflector.synced.wait(), 10)
            await kube.until(lambda: len(kube.watches) > 0)
            yield watcher
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def on_loop(test: Callable[[Kube], Coroutine[Any, Any, None]], kube: Kube) -> None:
    """Run a test's coroutine with the server up."""

    async def run() -> None:
        async with kube:
            await test(kube)

    asyncio.run(run())


def test_it_lists_then_follows(kube: Kube):
    """What is there is added; what changes is told with the change, and the copy follows."""

    async def scene(kube: Kube) -> None:
        kube.put("a")
        async with watching(kube) as watcher:
            assert watcher.told == [("add", "a", "uid-a")]
            kube.put("b")
            kube.put("a", phase="Running")
            kube.remove("b")
            await kube.until(lambda: len(watcher.told) == 4)
            assert [t[:2] for t in watcher.told[1:]] == [("add", "b"), ("update", "a"), ("delete", "b")]
            assert watcher.names == {"ns/a"}
            assert watcher.reflector.get("a", "ns").status.phase == "Running"
            assert watcher.reflector.connected

    on_loop(scene, kube)


def test_a_broken_watch_resumes_where_it_was(kube: Kube):
    """After a cut connection the next watch starts from the last version seen, with no new list."""

    async def scene(kube: Kube) -> None:
        async with watching(kube) as watcher:
            kube.put("a")
            await kube.until(lambda: watcher.names == {"ns/a"})
            seen = str(kube.version)
            kube.cut_watches()
            kube.put("b")
            await kube.until(lambda: watcher.names == {"ns/a", "ns/b"})
            assert kube.lists == 1
            assert kube.watches[1]["resourceVersion"] == seen
            assert kube.watches[1]["allowWatchBookmarks"] == "true"

    on_loop(scene, kube)


def test_bookmarks_move_the_version_on(kube: Kube):
    """A watch that broke after a bookmark resumes from the bookmark, though nothing else came."""

    async def scene(kube: Kube) -> None:
        async with watching(kube) as watcher:
            kube.version = 70
            kube.send("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "70"}})
            kube.put("a")
            await kube.until(lambda: watcher.names == {"ns/a"})
            kube.send("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "90"}})
            await kube.until(lambda: watcher.reflector._version == "90")
            kube.version = 90
            kube.cut_watches()
            await kube.until(lambda: len(kube.watches) > 1)
            assert kube.watches[1]["resourceVersion"] == "90"
            assert kube.lists == 1

    on_loop(scene, kube)


def test_a_forgotten_version_means_a_new_list_and_its_difference(kube: Kube):
    """After 410 Gone the handlers learn exactly what changed meanwhile, a pod made anew included."""

    async def scene(kube: Kube) -> None:
        for name in ("same", "changed", "gone", "anew"):
            kube.put(name)
        async with watching(kube) as watcher:
            watcher.told.clear()
            await kube.stop()
            kube.put("changed", phase="Running")
            kube.remove("gone")
            kube.remove("anew")
            kube.put("anew", uid="uid-2")
            kube.put("fresh")
            kube.forget()
            await kube.start()
            await kube.until(lambda: "ns/fresh" in watcher.names)
            assert sorted(watcher.told) == [
                ("add", "anew", "uid-2"),
                ("add", "fresh", "uid-fresh"),
                ("delete", "anew", "uid-anew"),
                ("delete", "gone", "uid-gone"),
                ("update", "changed", "uid-changed"),
            ]
            assert watcher.told.index(("delete", "anew", "uid-anew")) < watcher.told.index(
                ("add", "anew", "uid-2")
            )
            assert kube.lists == 2

    on_loop(scene, kube)


def test_a_list_forgotten_between_two_pages_is_begun_again(kube: Kube):
    """What the first pages said is put right: the copy has what there is, and no pod that went meanwhile."""

    async def scene(kube: Kube) -> None:
        for n in range(700):
            kube.put(f"pod-{n:04}")
        kube.before_page = compact
        async with watching(kube) as watcher:
            assert watcher.names == {f"ns/{name}" for name in kube.pods}
            assert ("delete", "pod-0000", "uid-pod-0000") in watcher.told
            assert kube.lists == 2
            assert watcher.reflector.synced.is_set()

    def compact(token: str) -> None:
        if token:
            kube.remove("pod-0000")
            kube.forget()
            kube.before_page = lambda _: None

    on_loop(scene, kube)


def test_what_is_kept_can_be_less_than_what_is_told(kube: Kube):
    """Handlers get new objects whole; the same objects, listed again, are no change."""

    async def scene(kube: Kube) -> None:
        kube.put("a", phase="Running")
        told: list[str] = []
        async with Api(Access(kube.url)) as api:
            reflector = Reflector(
                api,
                PODS,
                on_add=lambda new: told.append(f"add {new.status.phase}"),
                on_update=lambda old, new: told.append(f"{old.status.phase} to {new.status.phase}"),
                backoff=Backoff(first=0.01, most=0.05),
                keep=lambda new: Pod(metadata=new.metadata),
            )
            task = asyncio.create_task(reflector.run())
            await asyncio.wait_for(reflector.synced.wait(), 10)
            assert not reflector.get("a", "ns").status.phase
            await kube.until(lambda: kube.opened == 1)
            kube.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            await kube.until(lambda: kube.opened == 2)
            kube.put("a", phase="Failed")
            await kube.until(lambda: len(told) > 1)
            task.cancel()
        assert told == ["add Running", " to Failed"]

    on_loop(scene, kube)


@pytest.mark.parametrize("code", [410, 500])
def test_an_error_within_a_watch_means_a_new_list(kube: Kube, code: int):
    """An ERROR event is an answer like any other: the copy is made anew."""

    async def scene(kube: Kube) -> None:
        async with watching(kube) as watcher:
            kube.send("ERROR", {"kind": "Status", "code": code, "reason": "Expired", "message": "too old"})
            await kube.until(lambda: kube.lists == 2)
            kube.put("a")
            await kube.until(lambda: watcher.names == {"ns/a"})

    on_loop(scene, kube)


@pytest.mark.parametrize("late", ["MODIFIED", "DELETED", "BOOKMARK"])
def test_events_out_of_order_mean_a_new_list(kube: Kube, late: str):
    """What was held up on its way is not believed: the pod is as the server has it now."""

    async def scene(kube: Kube) -> None:
        kube.put("a", phase="Pending")
        held_up = kube.pods["a"]
        async with watching(kube) as watcher:
            kube.put("a", phase="Running")
            kube.send(late, held_up)
            kube.put("b")
            await kube.until(lambda: kube.lists == 2)
            await kube.until(lambda: watcher.names == {"ns/a", "ns/b"})
            assert watcher.reflector.get("a", "ns").status.phase == "Running"
            assert ("delete", "a", "uid-a") not in watcher.told

    on_loop(scene, kube)


def test_an_event_that_comes_twice_is_told_once(kube: Kube):
    """And nothing is read anew for it."""

    async def scene(kube: Kube) -> None:
        async with watching(kube) as watcher:
            kube.put("a")
            kube.send("ADDED", kube.pods["a"])
            kube.put("b")
            kube.remove("b")
            kube.write(kube.history[-1][1])
            kube.put("c")
            await kube.until(lambda: "ns/c" in watcher.names)
            told = [("add", "a"), ("add", "b"), ("delete", "b"), ("add", "c")]
            assert [(what, name) for what, name, _ in watcher.told] == told
            assert kube.lists == 1

    on_loop(scene, kube)


def test_a_server_restored_from_a_backup_is_read_anew(kube: Kube):
    """It would tell nothing until its versions have come to where they were."""

    async def scene(kube: Kube) -> None:
        for name in ("stays", "gone"):
            kube.put(name)
        async with watching(kube) as watcher:
            for name in ("made", "since"):
                kube.put(name)
            kube.remove("gone")
            await kube.until(lambda: watcher.names == {"ns/stays", "ns/made", "ns/since"})
            kube.restore(3, "stays", "gone")
            await kube.until(lambda: watcher.names == {"ns/stays", "ns/gone"})
            kube.put("new")
            await kube.until(lambda: "ns/new" in watcher.names)

    on_loop(scene, kube)


@pytest.mark.parametrize("gently", [False, True])
def test_a_line_cut_short_changes_nothing(kube: Kube, *, gently: bool):
    """A connection that ends within a line is a broken watch, not an event; the next one resumes."""

    async def scene(kube: Kube) -> None:
        kube.put("a")
        async with watching(kube) as watcher:
            kube.write(b'{"type":"ADDED","object":{"metadata":{"na')
            await kube.until(lambda: kube.delivered == len(kube.history))
            (kube.end_watches if gently else kube.cut_watches)()
            await kube.until(lambda: len(kube.watches) > 1)
            kube.put("b")
            await kube.until(lambda: watcher.names == {"ns/a", "ns/b"})
            assert kube.lists == 1

    on_loop(scene, kube)


def test_it_survives_the_api_servers_death_and_return(kube: Kube):
    """While the server is away the copy stays, marked as unconnected; then it follows again."""

    async def scene(kube: Kube) -> None:
        kube.put("a")
        async with watching(kube) as watcher:
            await kube.stop()
            await kube.until(lambda: not watcher.reflector.connected)
            assert watcher.names == {"ns/a"}
            await kube.start()
            await kube.until(lambda: watcher.reflector.connected)
            kube.put("b")
            await kube.until(lambda: watcher.names == {"ns/a", "ns/b"})

    on_loop(scene, kube)


def test_a_server_that_ends_every_watch_is_not_hammered(kube: Kube):
    """Watches that end at once are asked for at growing intervals."""

    async def scene(kube: Kube) -> None:
        backoff = Backoff(first=0.02, most=60)
        async with watching(kube, backoff):
            for round_number in range(1, 5):
                await kube.until(lambda n=round_number: kube.opened >= n)
                kube.end_watches()
            assert backoff.next() > 0.02 * 2**3 / 2

    on_loop(scene, kube)


def test_refusals_are_waited_out(kube: Kube):
    """A server that refuses (403 while its roles load, 503 while it starts) is asked until it answers."""

    async def scene(kube: Kube) -> None:
        kube.put("a")
        kube.refuse(403, "Forbidden")
        async with Api(Access(kube.url)) as api:
            watcher = Watcher(api, Backoff(first=0.01, most=0.05))
            task = asyncio.create_task(watcher.reflector.run())
            await kube.until(lambda: kube.refused > 2)
            assert not watcher.reflector.synced.is_set()
            kube.refuse(503, "ServiceUnavailable")
            kube.refuse(0, "")
            await kube.until(watcher.reflector.synced.is_set)
            assert watcher.names == {"ns/a"}
            task.cancel()

    on_loop(scene, kube)


def test_a_kind_that_the_server_does_not_know_is_told_of_once(kube: Kube, caplog: pytest.LogCaptureFixture):
    """Its CRD may never come: one line says so, also when it went away while it was followed."""

    async def scene(kube: Kube) -> None:
        kube.refuse(404, "NotFound")
        async with Api(Access(kube.url)) as api:
            watcher = Watcher(api, Backoff(first=0.01, most=0.05))
            task = asyncio.create_task(watcher.reflector.run())
            await kube.until(lambda: kube.refused > 3)
            kube.refuse(0, "")
            await kube.until(watcher.reflector.synced.is_set)
            task.cancel()

    on_loop(scene, kube)
    assert caplog.text.count("is its CRD applied?") == 1


def test_a_handler_that_raises_harms_nobody(kube: Kube, caplog: pytest.LogCaptureFixture):
    """The error is logged with the object's name, and the copy goes on."""

    async def scene(kube: Kube) -> None:
        kube.put("a")
        async with watching(kube) as watcher:
            watcher.told = None  # type: ignore[assignment] # every handler call now raises
            kube.put("b")
            kube.remove("a")
            await kube.until(lambda: watcher.names == {"ns/b"})

    on_loop(scene, kube)
    assert "handler of pods ns/b failed" in caplog.text


def test_an_object_that_cannot_be_read_is_left_out(kube: Kube, caplog: pytest.LogCaptureFixture):
    """One strange object, listed or watched, is logged; the others are as they should be."""

    async def scene(kube: Kube) -> None:
        kube.put("good")
        kube.put("bad")
        kube.pods["bad"]["spec"] = "no object"
        async with watching(kube) as watcher:
            assert watcher.names == {"ns/good"}
            kube.send("ADDED", {"metadata": {"name": "worse", "resourceVersion": "9"}, "spec": []})
            kube.put("fine")
            await kube.until(lambda: watcher.names == {"ns/good", "ns/fine"})

    on_loop(scene, kube)
    assert "ns/bad" in caplog.text
    assert "worse" in caplog.text


DEEP = "[" * 5000 + "]" * 5000
SPOILT = {
    "a proxy's page": "<html>proxy</html>",
    "no event": "[]",
    "an event of no type": '{"type":1}',
    "no object": '{"type":"ADDED","object":5}',
    "no metadata": '{"type":"ADDED","object":{"metadata":5}}',
    "nesting without end": '{"type":"ADDED","object":{"a":' + DEEP + "}}",
}


@pytest.mark.parametrize("line", SPOILT.values(), ids=SPOILT)
def test_a_line_that_is_no_event_means_a_new_list(kube: Kube, line: str):
    """What cannot be read cannot be skipped by its version; the list tells what is true."""

    async def scene(kube: Kube) -> None:
        async with watching(kube) as watcher:
            kube.write(line.encode() + b"\n")
            await kube.until(lambda: kube.lists == 2)
            kube.put("a")
            await kube.until(lambda: watcher.names == {"ns/a"})

    on_loop(scene, kube)


def test_a_list_with_an_object_without_metadata_is_read(kube: Kube, caplog: pytest.LogCaptureFixture):
    """The others are as they should be."""

    async def scene(kube: Kube) -> None:
        kube.put("good")
        kube.pods["bad"] = {"metadata": 5}
        async with watching(kube) as watcher:
            assert watcher.names == {"ns/good"}

    on_loop(scene, kube)
    assert "an object without a name" in caplog.text


def test_back_off_grows_and_is_bounded():
    """Each wait is between half and all of a doubling time that ends at the limit; success starts it over."""
    backoff = Backoff(first=1, most=8)
    waits = [backoff.next() for _ in range(100)]
    for wait, whole in zip(waits, [1, 2, 4, *[8] * 97], strict=True):
        assert whole / 2 <= wait <= whole
    backoff.reset()
    assert backoff.next() <= 1


@pytest.mark.parametrize(("code", "known"), [(404, True), (403, False), (500, False)])
def test_a_server_that_knows_no_such_kind_has_answered(kube: Kube, code: int, known: bool):
    """There are none of it, then; any other refusal says nothing of what there is."""

    async def scene(kube: Kube) -> None:
        asked = 0

        def refuse(_: web.Request) -> web.Response:
            nonlocal asked
            asked += 1
            return web.json_response({"kind": "Status", "code": code, "message": "no"}, status=code)

        kube.answer = refuse
        async with Api(Access(kube.url)) as api:
            reflector = Reflector(api, PODS, backoff=Backoff(first=0.01, most=0.05))
            task = asyncio.create_task(reflector.run())
            await kube.until(lambda: asked > 2)
            assert (reflector.answered.is_set(), reflector.synced.is_set()) == (known, False)
            kube.answer = lambda _: None
            await asyncio.wait_for(reflector.synced.wait(), 10)
            assert reflector.answered.is_set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    on_loop(scene, kube)


@pytest.mark.parametrize("optional", [False, True])
def test_a_kind_that_need_not_be_there_is_nothing_to_warn_of(
    kube: Kube, caplog: pytest.LogCaptureFixture, optional: bool
):
    """Others are asked after: their CRD may have been forgotten."""

    async def scene(kube: Kube) -> None:
        kube.refuse(404, "NotFound")
        async with Api(Access(kube.url)) as api:
            reflector = Reflector(api, PODS, backoff=Backoff(first=0.01, most=0.05), optional=optional)
            task = asyncio.create_task(reflector.run())
            await asyncio.wait_for(reflector.answered.wait(), 10)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    on_loop(scene, kube)
    assert ("is its CRD applied?" in caplog.text) == (not optional)
