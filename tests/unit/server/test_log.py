"""Log lines: one a record, whole, with what was added to them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from aliquot.server.log import configure


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def lines(style: str, level: str = "info") -> list[str]:
    """Log three records and return what was written."""
    stream = io.StringIO()
    configure(level, style, stream)
    log = logging.getLogger("aliquot.plugin.gate")
    log.debug("detail")
    log.info("placed %s\nhere", "pod", extra={"pod": "ns/p", "card": "GPU-1"})
    try:
        raise OSError("gone")  # noqa: TRY301
    except OSError:
        log.exception("failed")
    return stream.getvalue().splitlines()


def test_json_lines_hold_everything_about_a_record():
    """Time, level, logger, message and extras; line breaks and tracebacks stay within the one line."""
    placed, failed = map(json.loads, lines("json"))
    assert placed.pop("ts").endswith("Z")
    assert placed == {
        "level": "info", "logger": "aliquot.plugin.gate", "msg": "placed pod\nhere", "pod": "ns/p", "card": "GPU-1",
    }  # fmt: skip
    assert "OSError: gone" in failed["error"]


def test_plain_lines_are_for_people():
    """Level and message are there to be read."""
    assert "INFO" in lines("plain")[0]


def test_the_level_is_obeyed():
    """Debug records come only when asked for."""
    assert "detail" not in "".join(lines("json"))
    assert "detail" in "".join(lines("json", "debug"))


@pytest.mark.parametrize(("level", "style"), [("loud", "json"), ("info", "xml")])
def test_unknown_settings_are_refused(level: str, style: str):
    """A misspelt flag is an error, not a silent default."""
    with pytest.raises(ValueError, match="must be one of"):
        configure(level, style)
