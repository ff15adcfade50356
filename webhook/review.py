"""Reads and writes AdmissionReview v1 (`admission.k8s.io/v1`), and nothing older."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from aliquot.kube.objects import UNREADABLE, KubeStruct, Pod

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
_T = TypeVar("_T")
LONGEST_WARNING = 256
"""In characters; the API server cuts off the rest."""


class ReviewError(ValueError):
    """A body that is no AdmissionReview we can answer; the message names what is wrong and what to do."""


class _Kind(KubeStruct, frozen=True, kw_only=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class Review(KubeStruct, frozen=True, kw_only=True):
    """One request of the API server.

    Attributes:
        uid: Names the request in the answer.
        kind: What kind of object it is about.
        namespace: Where the object is, or is to be.
        sub_resource: For example `status`; empty for the object itself.
        operation: CREATE, UPDATE, DELETE or CONNECT.
        object: The object as it would be stored, unread.
        old_object: The object as it is stored, where there is one, unread.
    """

    uid: str
    kind: _Kind = _Kind()
    namespace: str = ""
    sub_resource: str = ""
    operation: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def is_pod_update(self) -> bool:
        """Whether somebody edits a pod."""
        return self.is_pod and self.operation == "UPDATE" and not self.sub_resource

    @property
    def is_pod_creation(self) -> bool:
        """Whether this is a new pod."""
        return self.is_pod and self.operation == "CREATE" and not self.sub_resource

    @property
    def is_pod(self) -> bool:
        """Whether it is about a pod at all."""
        return (self.kind.group, self.kind.version, self.kind.kind) == ("", "v1", "Pod")

    @property
    def kind_name(self) -> str:
        """The kind as people write it: `apps/v1 Deployment`."""
        version = f"{self.kind.group}/{self.kind.version}" if self.kind.group else self.kind.version
        return f"{version} {self.kind.kind}".strip()


class _Envelope(KubeStruct, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    request: msgspec.Raw = msgspec.Raw(b"null")


def read_review(body: bytes) -> Review:
    """Read the API server's request.

    Raises:
        ReviewError: the body is cut short, no JSON, no AdmissionReview, or of another version.
    """
    envelope = _decode(body, _Envelope, "the body is no AdmissionReview")
    if envelope.kind != KIND:
        raise ReviewError(f"kind is {envelope.kind!r}, not {KIND!r}; only the API server should call this")
    if envelope.api_version != API_VERSION:
        raise ReviewError(
            f"apiVersion is {envelope.api_version!r}, not {API_VERSION!r}; set admissionReviewVersions: [v1]"
        )
    review = _decode(envelope.request, Review, "the AdmissionReview has no request")
    if not review.uid:
        raise ReviewError("request.uid is empty, so the answer could not name it")
    return review


def read_pod(review: Review) -> tuple[dict[str, Any], Pod]:
    """The pod of a review, as it came and as we read it.

    Raises:
        ReviewError: the object is no pod.
    """
    document = _decode(review.object, dict[str, Any], "request.object is no pod")
    return document, _decode(review.object, Pod, "request.object is no pod")


def read_old_pod(review: Review) -> Pod:
    """The pod of a review as it is stored.

    Raises:
        ReviewError: there is none.
    """
    return _decode(review.old_object, Pod, "request.oldObject is no pod")


def _decode(body: bytes | msgspec.Raw, kind: type[_T], problem: str) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE as error:
        raise ReviewError(f"{problem}: {error}") from error


def allow(
    uid: str, operations: Sequence[Mapping[str, Any]] = (), warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """The answer that lets an object in, with these changes."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(operations)).decode()
    if warnings:
        response["warnings"] = [warning[:LONGEST_WARNING] for warning in warnings]
    return _envelope(response)


def deny(uid: str, message: str, *, code: int = 422, reason: str = "Invalid") -> dict[str, Any]:
    """The answer that keeps an object out, with the message its author reads."""
    status = {"code": code, "reason": reason, "message": message}
    return _envelope({"uid": uid, "allowed": False, "status": status})


def _envelope(response: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}
