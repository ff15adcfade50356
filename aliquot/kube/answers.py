"""What the API server answers: objects as they are asked for, and errors."""

from http import HTTPStatus
from typing import TypeVar

import msgspec

from aliquot.kube.objects import UNREADABLE, Status

S = TypeVar("S")


class ApiError(Exception):
    """The API server refused a request, or could not be reached (status 0).

    `reason` is Kubernetes' word for it (`NotFound`, `Conflict`, `Expired`), `message` its sentence.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{reason or 'Error'} ({status}): {message}" if status else message)
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def unreachable(self) -> bool:
        """No answer came; a write may still have happened."""
        return self.status == 0

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later."""
        return (
            self.unreachable or self.status in (408, 429) or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        )

    @property
    def not_found(self) -> bool:
        """There is no such object."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def conflict(self) -> bool:
        """It exists already, or somebody else changed it first."""
        return self.status == HTTPStatus.CONFLICT

    @property
    def too_many(self) -> bool:
        """Not now: a disruption budget, or too many requests."""
        return self.status == HTTPStatus.TOO_MANY_REQUESTS

    @property
    def gone(self) -> bool:
        """The resource version is older than the server's memory."""
        return self.status == HTTPStatus.GONE


def error_from_status(body: bytes | msgspec.Raw, http_status: int = 0) -> ApiError:
    """Make an error of a `Status` object, or of whatever else a proxy answered."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except UNREADABLE:
        text = bytes(body)[:200].decode(errors="replace").strip()
        return ApiError(http_status, "", text or "no message")
    return ApiError(http_status or status.code, status.reason, status.message or status.error or "no message")


def read_answer(body: bytes | msgspec.Raw, kind: type[S], status: int = 0) -> S:
    """Read what the server sent; anything else than asked for is an ApiError, by default unreachable."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as error:
        raise no_answer(kind.__name__, error, status) from error


def no_answer(kind: str, error: Exception, status: int = 0) -> ApiError:
    """The error where what was sent cannot be read as what was asked for."""
    return ApiError(status, "Unreadable", f"the API server did not answer with a {kind}: {error}")
