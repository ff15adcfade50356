"""Errors of the API server, each a Kubernetes Status object with the real server's code and wording."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aliquot.sandbox.cluster.apiserver.rbac import Ask
    from aliquot.sandbox.cluster.objects import Obj


class StatusError(Exception):
    """A request that failed; `body` is what the client gets."""

    def __init__(self, code: int, reason: str, message: str, details: Obj | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    @property
    def body(self) -> Obj:
        """The Status object of this failure."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


class UnservedPathError(Exception):
    """404 in plain text, as the real server says it of paths outside of every API group that it serves."""

    TEXT = "404 page not found\n"


def bad_request(message: str) -> StatusError:
    """400: the request cannot be read."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """401: no or a wrong bearer token."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(user: str, ask: Ask) -> StatusError:
    """403: RBAC does not let this user do that."""
    if ask.path:
        why = f'User "{user}" cannot {ask.verb} path "{ask.path}"'
        return StatusError(403, "Forbidden", f"forbidden: {why}", {})
    where = f' in the namespace "{ask.namespace}"' if ask.namespace else " at the cluster scope"
    why = f'User "{user}" cannot {ask.verb} resource "{ask.resource}" in API group "{ask.group}"{where}'
    plural = ask.resource.partition("/")[0]
    kind = f"{plural}.{ask.group}" if ask.group else plural
    what = f'{kind} "{ask.name}"' if ask.name else kind
    return StatusError(403, "Forbidden", f"{what} is forbidden: {why}", _about(kind, ask.name))


def path_not_found() -> StatusError:
    """404 for a path within a served group that no registered resource serves."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def not_found(resource: str, name: str) -> StatusError:
    """404 for an object that is not there; `resource` is the qualified plural."""
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', _about(resource, name))


def method_not_allowed() -> StatusError:
    """405: the resource has no such verb."""
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def already_exists(resource: str, name: str) -> StatusError:
    """409 on creating a name that is taken."""
    return StatusError(409, "AlreadyExists", f'{resource} "{name}" already exists', _about(resource, name))


def conflict(resource: str, name: str, why: str) -> StatusError:
    """409: the object is not in the state that the request assumes."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, _about(resource, name))


def too_many(message: str) -> StatusError:
    """429: not now."""
    return StatusError(429, "TooManyRequests", message)


def expired(asked: int, oldest: int) -> StatusError:
    """410: the history no longer reaches back to the asked resourceVersion."""
    return StatusError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def unsupported_media(media_type: str) -> StatusError:
    """415: a patch type that this resource does not take."""
    message = f"the body of the request was in an unknown format - {media_type} is not accepted here"
    return StatusError(415, "UnsupportedMediaType", message)


def invalid(kind: str, name: str, errors: Sequence[str]) -> StatusError:
    """422: `errors` are sentences "field: why"."""
    text = errors[0] if len(errors) == 1 else "[" + ", ".join(errors) + "]"
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', {"name": name, "kind": kind})


def internal(message: str) -> StatusError:
    """500, in the real server's wording."""
    return StatusError(500, "InternalError", f"Internal error occurred: {message}")


def _about(resource: str, name: str) -> Obj:
    plural, _, group = resource.partition(".")
    about: Obj = {"name": name, "kind": plural}
    return {**about, "group": group} if group else about
