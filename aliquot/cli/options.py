"""Options and errors that several sub-commands share."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from aliquot.api import names
from aliquot.api.names import ResourceNames
from aliquot.api.resource_domain import ResourceDomainError, names_of
from aliquot.units import QuantityError, parse_percent


class Refusal(click.ClickException):
    """Aliquot itself cannot do what was asked: no driver, no such card, no room.

    Exit status 125, which `env` and `docker run` keep for the same purpose.
    """

    exit_code = 125


def confined() -> bool:
    """Whether this process has a slice itself."""
    return names.CONTROL_ENV in os.environ or Path(names.CONTROL_PATH).exists()


def refuse_inside(why: str) -> None:
    """Refuses to go on in a process that has a slice itself."""
    if confined():
        raise Refusal(f"this process is confined to a slice already; {why}")


CURES = {
    errno.ENOSPC: "its file system is full: free some space there",
    errno.EDQUOT: "your quota there is used up: free some space there",
    errno.EROFS: "its file system is read-only: have it mounted for writing",
    errno.EACCES: "you may not write there: change its owner or mode",
}
ELSEWHERE = "set XDG_RUNTIME_DIR to a directory of yours on another file system"


@contextmanager
def refuse_os_errors(purpose: str, directory: Path | None = None) -> Iterator[None]:
    """Says which file could not be used for what, and what helps, where a traceback would come otherwise.

    Args:
        purpose: What the files are for.
        directory: Below XDG_RUNTIME_DIR; named where the error names no file, as that of a full disk does not.
    """
    try:
        yield
    except OSError as error:
        raise Refusal(words_of(error, purpose, directory)) from error


def words_of(error: OSError, purpose: str, directory: Path | None = None) -> str:
    """A sentence about a file that could not be used, with what helps."""
    helps = [CURES[error.errno]] if error.errno in CURES else []
    if helps and directory:
        helps.append(ELSEWHERE)
    help_ = f"; {', or '.join(helps)}" if helps else ""
    return f"cannot {purpose}: {error.filename or directory}: {error.strerror}{help_}"


class Percent(click.ParamType[int]):
    """A whole percentage, 1 to 100."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The percentage as a number."""
        if isinstance(value, int):
            return value
        try:
            return parse_percent(str(value))
        except QuantityError as error:
            self.fail(str(error), param, ctx)


class Domain(click.ParamType[ResourceNames]):
    """The domain of Aliquot's resources, read as their names."""

    name = "domain"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ResourceNames:
        """The names."""
        if isinstance(value, ResourceNames):
            return value
        try:
            return names_of(str(value))
        except ResourceDomainError as error:
            self.fail(str(error), param, ctx)


simulate_option = click.option(
    "--simulate", is_flag=True, help="Use a simulated machine of two 16Gi cards instead of this machine's."
)
