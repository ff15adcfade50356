"""Options and errors that several sub-commands share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from aliquot import names
from aliquot.units import QuantityError, parse_bytes, parse_percent


class Refusal(click.ClickException):
    """Aliquot itself cannot do what was asked: no driver, no such card, no room.

    Exit status 125, which `env` and `docker run` keep for the same purpose.
    """

    exit_code = 125


def refuse_inside(why: str) -> None:
    """Refuses to go on in a process that has a slice itself."""
    if names.CONTROL_ENV in os.environ or Path(names.CONTROL_PATH).exists():
        raise Refusal(f"this process is confined to a slice already; {why}")


@contextmanager
def refuse_os_errors(purpose: str) -> Iterator[None]:
    """Says which file could not be used for what, where a traceback would come otherwise."""
    try:
        yield
    except OSError as error:
        raise Refusal(f"cannot {purpose}: {error.filename}: {error.strerror}") from error


class Memory(click.ParamType[int]):
    """A Kubernetes quantity of memory (`2Gi`, `512Mi`) as bytes."""

    name = "quantity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The quantity in bytes; the words of a refusal are those of aliquot.units."""
        return value if isinstance(value, int) else _read(parse_bytes, value, self, param, ctx)


class Percent(click.ParamType[int]):
    """A whole percentage, 1 to 100."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The percentage as a number."""
        return value if isinstance(value, int) else _read(parse_percent, value, self, param, ctx)


class Cap(Percent):
    """A whole percentage, or `none` (0) for no cap."""

    name = "percent|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The percentage as a number."""
        return 0 if value == "none" else super().convert(value, param, ctx)


def _read(
    parse: Any,
    value: Any,
    kind: click.ParamType[int],
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> int:
    try:
        return int(parse(str(value)))
    except QuantityError as error:
        _fail(kind, str(error), param, ctx)


def _fail(
    kind: click.ParamType[int], words: str, param: click.Parameter | None, ctx: click.Context | None
) -> NoReturn:
    kind.fail(words, param, ctx)


simulate_option = click.option(
    "--simulate", is_flag=True, help="Use a simulated machine of two 16Gi cards instead of this machine's."
)
