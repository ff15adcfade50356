"""Tells the kubelet whether the kube-scheduler of this pod is well: `GET /kube-scheduler/healthz[?wait=SECONDS]`.

kube-scheduler asks the extender of its own pod alone, so without that one it can place no pod with a slice, and it must
not keep its Lease. The kubelet asks for kube-scheduler's health here and not at kube-scheduler's port: where this
process answers nothing, the kubelet ends kube-scheduler, which hands its Lease back, and another replica schedules.

Two faults of different weight come by one probe. A silent extender is to be noticed within seconds. A silent
kube-scheduler is given `SILENT_SECONDS`, for its Lease expires long before: another replica schedules meanwhile.

And kube-scheduler reads the extender's CAs once, when it starts. When they have changed it is called unwell, so that it
is started anew before it meets a certificate that it does not trust.
"""

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

PATH: Final = "/kube-scheduler/healthz"
SILENT_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 0.7
"""Less than the probe's one second."""
LONGEST_WAIT_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 0.2
"""Between two questions to kube-scheduler, however many callers ask here."""


class KubeSchedulerHealth:
    """The health of one kube-scheduler."""

    def __init__(
        self, url: str, clock: Callable[[], float] = time.monotonic, authorities: Path | None = None
    ) -> None:
        """Ask nothing yet.

        Args:
            url: Its /healthz. Its certificate is not verified: it is on this machine, and made by itself.
            clock: Monotonic seconds.
            authorities: The file of CAs that it has read; None where it reads none.
        """
        self._url = url
        self._authorities = authorities
        self._trusted: bytes | None = None
        self._clock = clock
        self._lock = asyncio.Lock()
        self._asked_at = -AGAIN_SECONDS
        self._well = False
        self._well_at: float | None = None

    async def answer(self, request: web.Request) -> web.Response:
        """Answer the kubelet; with `wait`, once kube-scheduler is well, or after so many seconds."""
        try:
            seconds = min(LONGEST_WAIT_SECONDS, float(request.query.get("wait", "0")))
        except ValueError:
            return web.Response(text="wait: give a number of seconds\n", status=HTTPStatus.BAD_REQUEST)
        if seconds > 0:
            self._trusted = self._read_authorities()  # the kubelet asks so when it has started it
            well = await self._become_well(seconds)
        elif not self._knows_authorities():
            return web.Response(
                text="kube-scheduler has read other CAs than there are now, and has to be started anew\n",
                status=HTTPStatus.SERVICE_UNAVAILABLE,
            )
        else:
            well = await self._is_well() or self._silent_for() < SILENT_SECONDS
        if well:
            return web.Response(text="ok\n")
        return web.Response(
            text=f"kube-scheduler at {self._url} does not answer that it is well\n",
            status=HTTPStatus.SERVICE_UNAVAILABLE,
        )

    def _knows_authorities(self) -> bool:
        """Whether the CAs are those of its start, or of the first question where its start was not seen."""
        now = self._read_authorities()
        if self._trusted is None:
            self._trusted = now
        return now is None or now == self._trusted

    def _read_authorities(self) -> bytes | None:
        try:
            return self._authorities.read_bytes() if self._authorities else None
        except OSError:
            return None

    async def _become_well(self, seconds: float) -> bool:
        end = self._clock() + seconds
        while not await self._is_well():
            if self._clock() >= end:
                return False
            await asyncio.sleep(AGAIN_SECONDS)
        return True

    def _silent_for(self) -> float:
        """Seconds since it was well; counted from the first question where it has never been."""
        if self._well_at is None:
            self._well_at = self._clock()
        return self._clock() - self._well_at

    async def _is_well(self) -> bool:
        """Whether it says so now, or did a moment ago."""
        async with self._lock:
            if self._clock() - self._asked_at >= AGAIN_SECONDS:
                self._well = await self._ask()
                self._asked_at = self._clock()
                if self._well:
                    self._well_at = self._asked_at
            return self._well

    async def _ask(self) -> bool:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self._url, ssl=False) as answer,
            ):
                return answer.status == HTTPStatus.OK
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
