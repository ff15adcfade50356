"""What the agent is told on its command line."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aliquot.api import resource_domain
from aliquot.api.names import ResourceNames
from aliquot.crds.gpu_pool import Enforcement
from aliquot.libshim.library import forwarder_path, library_path
from aliquot.node.processes import Processes
from aliquot.plugin.devices.driver_root import DriverRoot
from aliquot.server import authn, log
from aliquot.units import QuantityError, parse_bytes, to_mib

WAIT_S = 10.0
FORWARDED = ("libcuda.so.1", "libnvidia-ml.so.1")


@dataclass(frozen=True)
class Settings:
    """Paths are the host's; `wait_s` is how long a container's start may wait for its placement."""

    node: str
    kubeconfig: Path | None
    kubelet_dir: Path
    pod_resources_socket: Path
    state_dir: Path
    run_dir: Path
    cdi_dir: Path
    slices_per_card: int
    reserve_mib: int
    driver: DriverRoot
    dev_root: Path
    processes: Processes
    proc_root: Path
    pods_dir: Path
    sys_root: Path
    library: Path
    forwarders: tuple[Path, ...]
    metrics_port: int
    arbiter: bool = True
    enforcement: Enforcement = Enforcement.ENFORCE
    metrics_host: str = "0.0.0.0"  # noqa: S104 - Prometheus scrapes it from another pod
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    client_names: tuple[str, ...] = ()
    accept_tokens: bool = False
    wait_s: float = WAIT_S
    log_level: str = "info"
    log_format: str = "plain"
    names: ResourceNames = field(default_factory=ResourceNames)

    @property
    def device_plugins(self) -> Path:
        """Where plugins and the kubelet keep their sockets."""
        return self.kubelet_dir / "device-plugins"


def parse_settings(arguments: Sequence[str] | None = None) -> Settings:
    """Reads the command line; ends the process with a message where it is wrong."""
    parser = build_parser()
    given = parser.parse_args(arguments)
    complaint = _complaint(given)
    if complaint:
        parser.error(complaint)
    kubelet_dir: Path = given.kubelet_dir
    return Settings(
        node=given.node_name,
        kubeconfig=given.kubeconfig,
        kubelet_dir=kubelet_dir,
        pod_resources_socket=given.pod_resources_socket or kubelet_dir / "pod-resources" / "kubelet.sock",
        state_dir=given.state_dir,
        run_dir=given.run_dir,
        cdi_dir=given.cdi_dir,
        slices_per_card=given.slices_per_card,
        reserve_mib=given.reserve,
        driver=DriverRoot(given.driver_root, given.host_driver_root or given.driver_root),
        dev_root=given.dev_root,
        processes=Processes(given.proc, given.pod_cgroups),
        proc_root=given.proc_root or given.proc,
        pods_dir=given.pods_dir or kubelet_dir / "pods",
        sys_root=given.sys_root,
        library=given.library,
        forwarders=tuple(forwarder_path(soname, given.library) for soname in FORWARDED)
        if given.forwarders
        else (),
        metrics_port=given.metrics_port,
        arbiter=given.arbiter,
        enforcement=Enforcement(given.enforcement),
        metrics_host=given.metrics_host,
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
        client_ca=given.client_ca,
        client_names=tuple(given.client_names),
        accept_tokens=given.accept_tokens,
        wait_s=given.placement_wait,
        log_level=given.log_level,
        log_format=given.log_format,
        names=given.names,
    )


def build_parser() -> argparse.ArgumentParser:
    """All flags with their defaults."""
    parser = argparse.ArgumentParser(prog="aliquot-plugin", description="Aliquot's node agent.")
    add = parser.add_argument
    add("--node-name", default=os.environ.get("NODE_NAME") or os.uname().nodename, help="this node's name")
    add("--kubeconfig", type=Path, help="how to reach the API server; default: the pod's service account")
    add("--kubelet-dir", type=Path, default=Path("/var/lib/kubelet"), help="the kubelet's directory")
    add(
        "--pod-resources-socket",
        type=Path,
        help="default: pod-resources/kubelet.sock in the kubelet's directory",
    )
    add(
        "--pods-dir",
        type=Path,
        help="where the kubelet mounts the volumes of pods; default: pods in the kubelet's directory",
    )
    add("--state-dir", type=Path, default=Path("/var/lib/aliquot"), help="what must survive a reboot")
    add("--run-dir", type=Path, default=Path("/run/aliquot/host"), help="tenants' pages; on tmpfs")
    add(
        "--cdi-dir",
        type=Path,
        default=Path("/var/run/cdi"),
        help="where the container runtime reads CDI specs",
    )
    add("--slices-per-card", type=positive, default=10, help="how many containers may share a card")
    add(
        "--reserve",
        type=mebibytes,
        default=0,
        metavar="QUANTITY",
        help="memory of each card never given away",
    )
    add("--driver-root", type=Path, default=Path("/"), help="below this the driver's libraries are searched")
    add("--host-driver-root", type=Path, help="what the host calls that directory; default: the same")
    add("--dev-root", type=Path, default=Path("/dev"), help="where the device nodes are")
    add(
        "--proc",
        type=Path,
        default=Path("/proc"),
        help="the /proc of the host, where all its processes are seen",
    )
    add(
        "--pod-cgroups",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="cgroups tell whose a process is; without, tenants' pages do, as a kubelet without cgroups needs it",
    )
    add("--proc-root", type=Path, help="where the driver lists its MIG capabilities; default: as --proc")
    add("--sys-root", type=Path, default=Path("/sys"), help="where Linux tells how devices hang together")
    add(
        "--library",
        type=Path,
        default=library_path(),
        help="the interceptor to install; its forwarders lie in forwarder/ beside it",
    )
    add(
        "--forwarders",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="mount forwarders to the interceptor over the driver's libcuda and libnvidia-ml",
    )
    add(
        "--arbiter",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="lease the cards' time to those who share them; without it every gpu-core is a hard cap",
    )
    add(
        "--enforcement",
        choices=[str(word) for word in Enforcement],
        default=str(Enforcement.ENFORCE),
        help="what is done about limits where no GPUPool says; default: %(default)s",
    )
    add("--metrics-port", type=int, default=9464, help="0 picks a free port; -1 serves none")
    add("--metrics-host", default="0.0.0.0", help="address to serve metrics on")  # noqa: S104
    add("--tls-cert", type=Path, help="certificate for the metrics, reloaded when it changes; default: HTTP")
    add("--tls-key", type=Path, help="key of the certificate")
    resource_domain.add_arguments(parser)
    authn.add_arguments(parser)
    add("--placement-wait", type=float, default=WAIT_S, metavar="SECONDS", help="longest wait before a start")
    log.add_arguments(parser)
    return parser


def _complaint(given: argparse.Namespace) -> str:
    """What does not fit together."""
    if bool(given.tls_cert) != bool(given.tls_key):
        return "--tls-cert and --tls-key belong together"
    return authn.complaint(given)


def positive(text: str) -> int:
    """A whole number from 1. Raises argparse's error."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def mebibytes(text: str) -> int:
    """A quantity in MiB, rounded up. Raises argparse's error."""
    try:
        return to_mib(parse_bytes(text))
    except QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
