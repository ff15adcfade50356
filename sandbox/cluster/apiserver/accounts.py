"""Who a bearer token is: the admin, or a service account whose token this server has made.

Tokens of service accounts are JWTs with the claims of the real ones, signed with a key of this server. They are good
for their audience alone: one made for somebody else is nobody's here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aliquot.sandbox.cluster.apiserver import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aliquot.sandbox.cluster.apiserver.store import Store
    from aliquot.sandbox.cluster.objects import Obj

AUDIENCE = "https://kubernetes.default.svc.cluster.local"
SHORTEST_S, USUAL_S = 600, 3600


@dataclass(frozen=True)
class User:
    """As whom a request is made."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = field(default_factory=dict)

    def info(self) -> Obj:
        """As reviews show it."""
        shown: Obj = {"username": self.username, "groups": list(self.groups)}
        return shown | ({"uid": self.uid} if self.uid else {}) | ({"extra": self.extra} if self.extra else {})


ADMIN = User("admin", "admin", ("system:masters", "system:authenticated"))


class Accounts:
    """Makes tokens and knows them again."""

    def __init__(self, store: Store, admin_token: str) -> None:
        self._store = store
        self._admin = admin_token
        self._key = hashlib.sha256(f"accounts {admin_token}".encode()).digest()

    def request_token(self, namespace: str, name: str, asked: Obj) -> Obj:
        """A TokenRequest with its status; 404, 422."""
        account = self._store.get("serviceaccounts", namespace, name)
        if account is None:
            raise errors.not_found("serviceaccounts", name)
        spec = asked.get("spec") or {}
        audiences = spec.get("audiences") or [AUDIENCE]
        seconds = spec.get("expirationSeconds", USUAL_S)
        if seconds < SHORTEST_S:
            why = f"spec.expirationSeconds: Invalid value: {seconds}: may not specify a duration less than 10 minutes"
            raise errors.invalid("TokenRequest", name, [why])
        now = int(time.time())
        claims = {
            "aud": audiences,
            "exp": now + seconds,
            "iat": now,
            "iss": AUDIENCE,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": account["metadata"]["uid"]},
            },
            "nbf": now,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + seconds))
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"audiences": audiences, "expirationSeconds": seconds},
            "status": {"token": self._signed(claims), "expirationTimestamp": expires},
        }

    def user_of(self, token: str, audiences: Sequence[str] = (AUDIENCE,)) -> tuple[User, list[str]] | None:
        """Whose token it is, and for which of the audiences; None: nobody's, or it is for none of them."""
        if hmac.compare_digest(token.encode(), self._admin.encode()):
            return (ADMIN, [AUDIENCE]) if AUDIENCE in audiences else None
        claims = self._claims(token)
        common = [one for one in audiences if one in claims.get("aud", ())]
        if not common or claims["exp"] < time.time():
            return None
        named = claims["kubernetes.io"]
        namespace, account = named["namespace"], named["serviceaccount"]
        stored = self._store.get("serviceaccounts", namespace, account["name"])
        if stored is None or stored["metadata"]["uid"] != account["uid"]:
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
        return User(claims["sub"], account["uid"], groups, extra), common

    def review(self, asked: Obj) -> Obj:
        """A TokenReview with its status."""
        spec = asked.get("spec") or {}
        if not spec.get("token"):
            raise errors.bad_request("token is required for TokenReview in authentication")
        known = self.user_of(spec["token"], spec.get("audiences") or [AUDIENCE])
        status: Obj = {"user": {}, "error": "[invalid bearer token, unknown]"}
        if known is not None:
            status = {"authenticated": True, "user": known[0].info(), "audiences": known[1]}
        return {**asked, "metadata": asked.get("metadata") or {}, "status": status}

    def _signed(self, claims: Obj) -> str:
        head = _encoded({"alg": "HS256", "typ": "JWT"})
        text = f"{head}.{_encoded(claims)}"
        return f"{text}.{self._signature(text)}"

    def _signature(self, text: str) -> str:
        return _base64(hmac.digest(self._key, text.encode(), "sha256"))

    def _claims(self, token: str) -> Obj:
        """What a token of ours says; nothing where it is none."""
        text, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            return {}
        body = text.partition(".")[2]
        claims: Obj = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return claims


def _encoded(document: Obj) -> str:
    return _base64(json.dumps(document, separators=(",", ":")).encode())


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
