"""Asks a service on this machine for its health: `aliquot-await URL` returns once it answers.

A kubelet writes a Warning event for every probe that fails, and a service that has just been started does not listen
yet. So the start-up probe is a command that waits, and fails only where the service does not come up. Certificates are
not verified: the question goes to the same machine, and the answer is only whether the service is well.
"""

import argparse
import http.client
import ssl
import sys
import time
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit

PAUSE_SECONDS = 0.1
ANSWER_SECONDS = 1.0
START_SECONDS = 120.0
THEN_SECONDS = 10.0


class HealthClient:
    """Asks one URL, over one connection while that lasts."""

    def __init__(self, url: str, seconds: float = ANSWER_SECONDS) -> None:
        """Ask nothing yet.

        Args:
            url: `http://…` or `https://…`; ValueError for any other.
            seconds: How long to wait for each answer.
        """
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        if parts.scheme not in {"http", "https"} or not host:
            raise ValueError(f"{url}: give a URL like https://127.0.0.1:9443/healthz")
        self._path = parts.path or "/"
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(
                host,
                port,
                timeout=seconds,
                context=ssl._create_unverified_context(),  # noqa: S323, SLF001 - see above
            )
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=seconds)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def answers(self) -> bool:
        """Whether the service says, in time, that it is well."""
        try:
            self._connection.request("GET", self._path)
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return False
        return answer.status == HTTPStatus.OK


def wait(url: str, seconds: float) -> bool:
    """Whether the service answers within so many seconds."""
    end = time.monotonic() + seconds
    with HealthClient(url) as client:
        while not client.answers():
            if time.monotonic() >= end:
                return False
            time.sleep(PAUSE_SECONDS)
    return True


def main(arguments: list[str] | None = None) -> int:
    """Wait; the exit status is 1 where the service has not answered in time."""
    parser = argparse.ArgumentParser(
        prog="aliquot-await", description="Waits until a service on this machine answers."
    )
    parser.add_argument("url", help="for example https://127.0.0.1:9443/healthz")
    parser.add_argument("--seconds", type=float, default=START_SECONDS, help="default: %(default)s")
    parser.add_argument(
        "--then",
        metavar="URL",
        help="wait for this answer, too, for a while; it is no failure where it does not come",
    )
    options = parser.parse_args(arguments)
    if wait(options.url, options.seconds):
        if options.then:
            wait(options.then, THEN_SECONDS)
        return 0
    sys.stderr.write(f"aliquot-await: {options.url} has not answered for {options.seconds:g} s\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
