"""Keeps one resource registered with a kubelet that comes and goes.

A kubelet that starts deletes every socket in its directory and makes its own anew, and it must be told
again of each plugin. So the sign to act on is that our own socket is gone, or that `kubelet.sock` is another file
than after we had registered. It is acted on at once: the kubelet admits its pods again within
a fraction of a second, and fails those of which a container does not run for good where no plugin has registered by
then. A plugin must be serving before it registers: the kubelet dials back at once.
"""

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

import grpc

from aliquot.api.names import DOMAIN
from aliquot.plugin.kubelet.device_plugin import DevicePlugin, options
from aliquot.plugin.pb.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from aliquot.plugin.util.directory_watch import DirectoryWatch

log = logging.getLogger(__name__)

API_VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
REGISTER_TIMEOUT_S = 5.0
LOOK_EVERY_S = 0.25
"""How long a change may go unnoticed where the directory cannot be watched."""
RETRY_FIRST_S, RETRY_MOST_S = 0.05, 5.0
STOP_GRACE_S = 0.5
FRESH = [("grpc.use_local_subchannel_pool", 1)]
"""Else a new channel to the same path waits out the back-off of an earlier one that found no kubelet."""

Identity = tuple[int, int, int]


class Registration:
    """Serves a device plugin on a socket in the kubelet's directory and keeps the kubelet told of it."""

    def __init__(
        self, directory: Path, plugin: DevicePlugin, told: Callable[[], None] = lambda: None
    ) -> None:
        """`told` is called each time a kubelet was told of the plugin."""
        self._directory = directory
        self._plugin = plugin
        self._told = told
        self._kubelet = directory / KUBELET_SOCKET
        self._files = DirectoryWatch(directory)
        self.socket = directory / socket_name(plugin.resource)
        self.resource = plugin.resource
        self.registered = False

    async def run(self) -> None:
        """Serves and registers for ever, each time the kubelet is new. Cancelling it removes the socket."""
        complaint, wait_s = "", RETRY_FIRST_S
        with contextlib.closing(self._files):
            while True:
                await self._kubelet_there()
                try:
                    await self._serve_one_kubelet()
                    complaint, wait_s = "", RETRY_FIRST_S
                except (grpc.aio.AioRpcError, OSError, RuntimeError) as error:
                    complaint = self._complain(error, complaint)
                    await self._pause(wait_s)
                    wait_s = min(wait_s * 2, RETRY_MOST_S)

    async def _pause(self, wait_s: float) -> None:
        """Wait before the next try; a kubelet that is new by then is not made to wait."""
        kubelet, end = file_identity(self._kubelet), time.monotonic() + wait_s
        while (left_s := end - time.monotonic()) > 0 and file_identity(self._kubelet) == kubelet:
            await self._files.wait(left_s)

    def _complain(self, error: Exception, previous: str) -> str:
        """Says what went wrong, once for each new reason."""
        text = error.details() or str(error.code()) if isinstance(error, grpc.aio.AioRpcError) else str(error)
        if text != previous:
            log.warning("%s not registered with the kubelet: %s; trying on", self._plugin.resource, text)
        return text

    async def _kubelet_there(self) -> None:
        """Waits until the kubelet's socket exists; says once that it does not."""
        if file_identity(self._kubelet) is None:
            log.warning("no kubelet at %s; %s waits for it", self._kubelet, self._plugin.resource)
        while file_identity(self._kubelet) is None:
            await self._files.wait(LOOK_EVERY_S)

    async def _serve_one_kubelet(self) -> None:
        """Serves and registers, and returns when the kubelet is another one or our socket is gone.

        The kubelet's socket is looked at after the call: one that came between our socket and the call has deleted
        what there was before, and is the one that was told. One that comes after the call deletes our socket.

        The server is stopped before the kubelet is told again. One that is told over a socket over which it is
        connected refuses, and then forgets to end that connection: it refuses that socket until it starts anew (1.37).
        """
        server = await self._serve()
        try:
            own = file_identity(self.socket)
            await self._register()
            kubelet = file_identity(self._kubelet)
            self.registered = True
            self._told()
            log.info("registered %s with the kubelet", self._plugin.resource)
            await self._until_changed(kubelet, own)
        finally:
            self.registered = False
            await server.stop(STOP_GRACE_S)

    async def _serve(self) -> grpc.aio.Server:
        self._directory.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        server = grpc.aio.server()
        self._plugin.add_to(server)
        server.add_insecure_port(f"unix://{self.socket}")
        await server.start()
        return server

    async def _register(self) -> None:
        async with grpc.aio.insecure_channel(f"unix://{self._kubelet}", options=FRESH) as channel:
            await api_pb2_grpc.RegistrationStub(channel).Register(
                api_pb2.RegisterRequest(
                    version=API_VERSION,
                    endpoint=self.socket.name,
                    resource_name=self._plugin.resource,
                    options=options(),
                ),
                timeout=REGISTER_TIMEOUT_S,
            )

    async def _until_changed(self, kubelet: Identity | None, own: Identity | None) -> None:
        while (file_identity(self._kubelet), file_identity(self.socket)) == (kubelet, own):
            await self._files.wait(LOOK_EVERY_S)
        log.info("the kubelet's socket or ours has changed; registering %s again", self._plugin.resource)


def socket_name(resource: str) -> str:
    """The file name of a resource's socket: `aliquot-gpu.sock` for `aliquot.dev/gpu`.

    Resources of another domain have a digest in it: pods of both domains may run at the same time, and a whole domain
    could make the path longer than the 107 bytes that a socket's may have.
    """
    domain, _, word = resource.partition("/")
    digest = "" if domain == DOMAIN else f"-{hashlib.sha256(domain.encode()).hexdigest()[:8]}"
    return f"aliquot-{word}{digest}.sock"


def file_identity(path: Path) -> Identity | None:
    """What tells a file from its successor under the same name, or None if there is none.

    An inode number alone can be given out again at once; the time of the last status change cannot.
    """
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino, status.st_ctime_ns
    return None
