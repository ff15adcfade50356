"""How to be let in by an API server, once it is known where that is (kubeconfig.py).

Tokens expire (service accounts hourly, exec plugins at will), so they are asked for again every half minute, in a
thread, because a plugin is a subprocess.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_TOKEN_SECONDS: Final = 30.0


class AccessError(Exception):
    """There is no usable way to an API server; the message says what was tried."""


@dataclass
class Access:
    """One API server: its URL without a trailing slash, TLS, a source of authorization headers, and a namespace.

    `authorize` returns the Authorization header of now, or None with client certificates; where it cannot, for now, it
    raises an OSError or a ValueError. `namespace` is meant where a command names none.
    """

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: str | None = None
    authorize: Callable[[], str | None] | None = None
    namespace: str = "default"
    _header: str | None = field(default=None, init=False)
    _fresh_until: float = field(default=0.0, init=False)

    async def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request; empty with client certificates.

        Raises:
            AccessError: there is no token to be had now: the file is being replaced, or a plugin failed.
        """
        if self.authorize is not None and time.monotonic() >= self._fresh_until:
            try:
                self._header = await asyncio.to_thread(self.authorize)
            except (OSError, ValueError) as error:
                raise AccessError(f"no credentials: {error}") from error
            self._fresh_until = time.monotonic() + _TOKEN_SECONDS
        return {"Authorization": self._header} if self._header else {}

    def forget_token(self) -> None:
        """Read the credentials again at the next request: the server refused these."""
        self._fresh_until = 0.0
