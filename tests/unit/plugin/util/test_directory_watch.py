"""Changes of a directory are noticed when they are made."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.plugin.util.directory_watch import DirectoryWatch

NEVER_S = 3600.0
DEADLINE_S = 60.0
CHANGES: dict[str, Callable[[Path], object]] = {
    "a file is made": lambda path: (path / "new").touch(),
    "a file is removed": lambda path: (path / "old").unlink(),
    "a file is moved in": lambda path: (path.parent / "beside").rename(path / "beside"),
    "a file is replaced": lambda path: (path.parent / "beside").rename(path / "old"),
    "the directory is removed": shutil.rmtree,
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory of one file, and a file beside it."""
    made = tmp_path / "plugins"
    made.mkdir()
    (made / "old").touch()
    (tmp_path / "beside").touch()
    return made


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_ends_the_wait(directory: Path, change: Callable[[Path], object]):
    """Long before its time-out."""

    async def watch() -> None:
        files = DirectoryWatch(directory)
        waiting = asyncio.create_task(files.wait(NEVER_S))
        await asyncio.sleep(0)  # it watches from here on
        change(directory)
        await asyncio.wait_for(waiting, DEADLINE_S)
        files.close()

    asyncio.run(watch())


def test_a_change_between_two_waits_is_not_lost(directory: Path):
    """The second returns at once."""

    async def watch() -> None:
        files = DirectoryWatch(directory)
        await files.wait(0)
        (directory / "new").touch()
        await asyncio.wait_for(files.wait(NEVER_S), DEADLINE_S)
        files.close()

    asyncio.run(watch())


def test_a_directory_that_is_made_anew_is_watched_again(directory: Path):
    """As by a cleaner that takes all of it away; until it is there waits run into their time-outs."""

    async def watch() -> None:
        files = DirectoryWatch(directory)
        await files.wait(0)
        shutil.rmtree(directory)
        await asyncio.wait_for(files.wait(NEVER_S), DEADLINE_S)
        await files.wait(0)
        os.mkdir(directory)  # noqa: PTH102 - pathlib's is held to be slow here
        await files.wait(0)
        (directory / "new").touch()
        await asyncio.wait_for(files.wait(NEVER_S), DEADLINE_S)
        files.close()

    asyncio.run(watch())


def test_nothing_stays_open(directory: Path):
    """However often a watch is begun and ended."""

    async def watch() -> None:
        files = DirectoryWatch(directory)
        await files.wait(0)
        files.close()
        files.close()

    asyncio.run(watch())
    before = _open_files()
    for _ in range(3):
        asyncio.run(watch())
    assert _open_files() == before


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
