"""The CDI spec of one nonce: all that the runtime adds to a container so that it can use its slice.

Device nodes of the chosen cards, the driver's files, the interceptor and the pages, but for a usage page that is in a
volume of the pod. The environment in a CDI spec beats the pod's own, so nothing here can be overruled by a manifest.
Where a forwarder stands for a library of the driver, it takes all the names of that library, which gets one that only
the forwarder asks for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aliquot.api.names import (
    CONTROL_ENV,
    CONTROL_PATH,
    LIBRARY_PATH,
    PRELOAD_FILE,
    USAGE_ENV,
    USAGE_PATH,
)
from aliquot.node.cdi import (
    ContainerEdits,
    Device,
    DeviceNode,
    Mount,
    Spec,
    remove_spec,
    spec_path,
    write_spec,
)
from aliquot.plugin.container.interceptor import Interceptor
from aliquot.plugin.container.tenant_pages import TenantPages
from aliquot.plugin.devices.driver_files import CONTROL_NODES, DriverFile, find_driver_files
from aliquot.plugin.devices.driver_root import DriverRoot
from aliquot.plugin.kubelet.device_plugin import CDI_KIND
from aliquot.plugin.util.atomic_files import remove_leftovers

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
WRITABLE = ("rw", "nosuid", "nodev", "noexec", "rbind", "rprivate")
FILE_PREFIX = f"{CDI_KIND.replace('/', '-')}_"
ENVIRONMENT = (
    # Keeps NVIDIA's own runtime hook from adding cards by its own rules.
    "NVIDIA_VISIBLE_DEVICES=void",
    f"{CONTROL_ENV}={CONTROL_PATH}",
    f"{USAGE_ENV}={USAGE_PATH}",
)


@dataclass(frozen=True)
class CdiSpecs:
    """Writes and removes specs. Paths are the host's."""

    directory: Path
    driver: DriverRoot
    dev_root: Path
    interceptor: Interceptor

    def prepare(self) -> None:
        """Makes the directory, and removes what a kill has left half-written. Raises OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.directory, f".{FILE_PREFIX}")

    def write(self, nonce: str, nodes: Sequence[str], tenant: TenantPages, *, by_file: bool = False) -> None:
        """Writes the spec of a nonce, also where it lies already: a runtime that missed it then looks again.

        `nodes` are names below /dev; `by_file`: the interceptor is preloaded by a file of the container's
        instead of its environment. Raises DriverFilesError or OSError.
        """
        write_spec(self.directory, file_name(nonce), self.spec(nonce, nodes, tenant, by_file=by_file))

    def spec(self, nonce: str, nodes: Sequence[str], tenant: TenantPages, *, by_file: bool = False) -> Spec:
        """The spec of a nonce. Raises DriverFilesError."""
        injected = (mount(self.interceptor.preload_list, PRELOAD_FILE),) if by_file else ()
        edits = ContainerEdits(
            env=ENVIRONMENT,
            device_nodes=tuple(self._nodes(nodes)),
            mounts=(*self._driver(), *self._pages(tenant), *injected),
        )
        return Spec(kind=CDI_KIND, devices=(Device(name=nonce, container_edits=edits),))

    def remove(self, nonce: str) -> None:
        """Removes the spec of a nonce nobody can use any more."""
        remove_spec(self.directory, file_name(nonce))

    def exists(self, nonce: str) -> bool:
        """Whether there is a spec of the nonce."""
        return spec_path(self.directory, file_name(nonce)).exists()

    def nonces(self) -> frozenset[str]:
        """Every nonce that has a spec."""
        return frozenset(
            path.stem.removeprefix(FILE_PREFIX) for path in self.directory.glob(f"{FILE_PREFIX}*.json")
        )

    def _nodes(self, names: Sequence[str]) -> Iterable[DeviceNode]:
        """The nodes asked for, and the driver's control nodes that this host has."""
        control = [name for name in CONTROL_NODES if (self.dev_root / name).exists()]
        for name in dict.fromkeys((*names, *control)):
            yield DeviceNode(path=f"/dev/{name}", host_path=str(self.dev_root / name), permissions="rw")

    def _driver(self) -> Iterable[Mount]:
        for file in find_driver_files(self.driver):
            forwarder = self.interceptor.forwarders.get(file.container.name)
            yield from forwarded(file, forwarder) if forwarder else [mount(file.host, file.container)]

    def _pages(self, tenant: TenantPages) -> Iterable[Mount]:
        yield mount(self.interceptor.library, LIBRARY_PATH)
        yield mount(tenant.control.path, CONTROL_PATH)
        if not tenant.has_own_volume:
            yield Mount(host_path=str(tenant.usage), container_path=USAGE_PATH, options=WRITABLE)


def forwarded(file: DriverFile, forwarder: Path) -> Iterable[Mount]:
    """The forwarder under every name of the driver's library, and the library behind it."""
    yield mount(file.host, file.behind)
    for name in file.names:
        yield mount(forwarder, name)


def mount(host: Path, container: Path | str) -> Mount:
    """A file that the container may read."""
    return Mount(host_path=str(host), container_path=str(container), options=READ_ONLY)


def file_name(nonce: str) -> str:
    """The spec's file name, less its ending."""
    return f"{FILE_PREFIX}{nonce}"
