"""Calls as bytes."""

import random


def post(size: int, *headers: str, length: str | None = None, path: str = "/filter") -> bytes:
    """A call."""
    head = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        f"Content-Length: {size if length is None else length}",
        *headers,
    ]
    return "\r\n".join([*head, "", ""]).encode() + random.Random(size).randbytes(size)
