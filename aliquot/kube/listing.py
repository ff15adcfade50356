"""Lists as the API server sends them: in pages, each with a token that asks for the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import msgspec

from aliquot.kube.objects import UNREADABLE, KubeObject, KubeStruct

T = TypeVar("T", bound=KubeObject)

PAGE: Final = 500
"""Objects that are asked for at once, as client-go does: a large cluster comes in pieces that fit in memory."""


@dataclass(frozen=True)
class Listing(Generic[T]):
    """Objects as they were at one resource version; `unreadable` names those that did not fit, and why."""

    resource_version: str
    items: tuple[T, ...]
    unreadable: tuple[str, ...] = ()


class _Meta(KubeStruct, frozen=True, kw_only=True):
    resource_version: str = ""
    token: str = msgspec.field(default="", name="continue")


class _Page(KubeStruct, Generic[T], frozen=True, kw_only=True):
    metadata: _Meta = _Meta()
    items: tuple[T, ...] | None = ()


def whole(pages: Sequence[Listing[T]]) -> Listing[T]:
    """All pages of a list as one."""
    items = tuple(chain.from_iterable(page.items for page in pages))
    unreadable = tuple(chain.from_iterable(page.unreadable for page in pages))
    return Listing(pages[-1].resource_version, items, unreadable)


def read_page(answer: bytes, kind: type[T]) -> tuple[Listing[T], str]:
    """Read a page, and the token of the next; object by object where one of them does not fit.

    Raises:
        UNREADABLE: this is no list at all.
    """
    try:
        page = _decoder(kind).decode(answer)
    except UNREADABLE:
        return _read_one_by_one(answer, kind)
    return Listing(page.metadata.resource_version, page.items or ()), page.metadata.token


def _read_one_by_one(answer: bytes, kind: type[T]) -> tuple[Listing[T], str]:
    page = _decoder(msgspec.Raw).decode(answer)
    items, unreadable = list[T](), list[str]()
    for item in page.items or ():
        try:
            items.append(msgspec.json.decode(item, type=kind))
        except UNREADABLE as error:
            unreadable.append(f"{_name_of(item)}: {error}")
    return Listing(page.metadata.resource_version, tuple(items), tuple(unreadable)), page.metadata.token


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Made once for each kind of object."""
    page: Any = _Page
    return msgspec.json.Decoder(page[kind])


def _name_of(item: msgspec.Raw) -> str:
    """Name an object that could not be read, as well as possible."""
    try:
        return msgspec.json.decode(item, type=KubeObject).key
    except UNREADABLE:
        return "an object without a name"
