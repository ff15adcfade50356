"""Asks the API server who a bearer token is, and what he may do: TokenReview, then SubjectAccessReview.

What a token may is what RBAC says of the path as a `nonResourceURL`, as with Kubernetes' own components. Answers are
kept for some seconds, by the token's hash: a scrape costs the API server nothing then, and a right that is taken away
is gone soon. How much strangers can make us ask is bounded.

A token that was made for us alone (`AUDIENCE` is in it) is reviewed as such; it opens nothing else, wherever it is
lost.
"""

import asyncio
import base64
import binascii
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec

from aliquot.kube.answers import ApiError
from aliquot.kube.api import Api
from aliquot.kube.objects import UNREADABLE

AUDIENCE: Final = "aliquot"
"""Of tokens that are for our services."""
GRANTED_SECONDS: Final = 20.0
DENIED_SECONDS: Final = 5.0
_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_MOST_KEPT: Final = 1024
_AT_ONCE: Final = 4
_MOST_WAITING: Final = 64
_PARTS_OF_A_JWT: Final = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a call may be answered: status 200, or 401, 403 or 503 and why."""

    status: int
    why: str = ""

    @property
    def granted(self) -> bool:
        """Whether it may."""
        return self.status == HTTPStatus.OK


GRANTED: Final = Verdict(HTTPStatus.OK)


@dataclass
class Reviewer:
    """Asks, and remembers for a short time."""

    api: Api
    clock: Callable[[], float] = time.monotonic
    _kept: dict[tuple[bytes, str, str], tuple[float, Verdict]] = field(default_factory=dict, init=False)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)
    _waiting: int = field(default=0, init=False)

    async def judge(self, token: str, path: str, verb: str) -> Verdict:
        """Whether the owner of a token may call this path with this verb (`get`, `post`)."""
        key = (hashlib.sha256(token.encode()).digest(), path, verb)
        until, verdict = self._kept.get(key, (0.0, GRANTED))
        if until > self.clock():
            return verdict
        if self._waiting >= _MOST_WAITING:
            return Verdict(HTTPStatus.SERVICE_UNAVAILABLE, "too many tokens are being checked; try again")
        self._waiting += 1
        try:
            async with self._turns:
                verdict = await self._ask(token, path, verb)
        except (ApiError, *UNREADABLE, msgspec.ValidationError) as error:
            return Verdict(HTTPStatus.SERVICE_UNAVAILABLE, f"the token cannot be checked now: {error}")
        finally:
            self._waiting -= 1
        self._keep(key, verdict)
        return verdict

    def _keep(self, key: tuple[bytes, str, str], verdict: Verdict) -> None:
        self._kept.pop(key, None)
        while len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        seconds = GRANTED_SECONDS if verdict.granted else DENIED_SECONDS
        self._kept[key] = (self.clock() + seconds, verdict)

    async def _ask(self, token: str, path: str, verb: str) -> Verdict:
        user = await self._user(token)
        if user is None:
            return Verdict(HTTPStatus.UNAUTHORIZED, "the API server does not know this token")
        spec = {
            "nonResourceAttributes": {"path": path, "verb": verb},
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
        }
        raw = await self._post(_ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        if msgspec.json.decode(raw, type=_AccessReview).status.allowed:
            return GRANTED
        return Verdict(
            HTTPStatus.FORBIDDEN,
            f"{user.username} may not {verb} {path}: grant it as a nonResourceURL by a ClusterRole",
        )

    async def _user(self, token: str) -> "_User | None":
        """Whose a token is; None: nobody's, or it is for somebody else."""
        ours = AUDIENCE in audiences_of(token)
        spec: dict[str, Any] = {"token": token, **({"audiences": [AUDIENCE]} if ours else {})}
        raw = await self._post(_TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", spec)
        status = msgspec.json.decode(raw, type=_TokenReview).status
        if not status.authenticated or (ours and AUDIENCE not in status.audiences):
            return None
        return status.user

    async def _post(self, path: str, version: str, kind: str, spec: Any) -> bytes:
        return await self.api.request("POST", path, body={"apiVersion": version, "kind": kind, "spec": spec})


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] = []


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class _Claims(msgspec.Struct):
    aud: str | list[str] = ""


def audiences_of(token: str) -> list[str]:
    """For whom a token says it is; nobody has checked that it says the truth. Empty where it says nothing."""
    parts = token.split(".")
    if len(parts) != _PARTS_OF_A_JWT:
        return []
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=="), type=_Claims)
    except (binascii.Error, ValueError, *UNREADABLE):
        return []
    return [claims.aud] if isinstance(claims.aud, str) else claims.aud
