"""Logging of the services: one line an event, as JSON for collectors or plain for people."""

import argparse
import json
import logging
import sys
import time
from typing import Final, TextIO

_STYLES: Final = ("json", "plain")
_LEVELS: Final = ("debug", "info", "warning", "error")
# What every record has; anything else was added by `extra=` and belongs in the line.
_ORDINARY: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a record: ts, level, logger, msg, what was given as `extra`, a traceback as `error`."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        entry: dict[str, object] = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        entry |= {key: value for key, value in vars(record).items() if key not in _ORDINARY}
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def _timestamp(record: logging.LogRecord) -> str:
    """Write a record's time as RFC 3339 in UTC, to the millisecond."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def configure(level: str = "info", style: str = "plain", stream: TextIO | None = None) -> None:
    """Send the process's log to a stream (stderr), replacing what was set up before.

    Raises:
        ValueError: no such level or style.
    """
    if level not in _LEVELS or style not in _STYLES:
        raise ValueError(f"log level must be one of {_LEVELS} and style one of {_STYLES}")
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else plain)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--log-level` and `--log-format` to a service's flags."""
    parser.add_argument("--log-level", choices=_LEVELS, default="info")
    parser.add_argument("--log-format", choices=_STYLES, default="plain")
