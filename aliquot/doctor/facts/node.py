"""What is known of a node: everything that its checks look at, read once by `node_reader`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aliquot.api.names import DEFAULT_NAMES, ResourceNames
from aliquot.doctor.facts.fact import UNREAD, Fact


def usual(path: Path) -> Path:
    """A directory by its usual name: /var/run is /run."""
    return Path("/", *path.parts[2:]) if path.parts[:3] == ("/", "var", "run") else path


Identity = tuple[int, int, int]
"""A process as its own namespace knows it: pid, inode of the pid namespace, start time (aliquot.node.processes)."""


@dataclass(frozen=True)
class Places:
    """Where things are, as this process sees them.

    Attributes:
        proc: The host's /proc.
        root: The host's files; `/` on the host itself.
        kubelet: The kubelet's directory.
        run: The node agent's --run-dir.
        cdi: Its --cdi-dir.
        dev: Where the cards' device nodes are.
        driver: The driver's root.
    """

    proc: Path
    root: Path
    kubelet: Path
    run: Path
    cdi: Path
    dev: Path
    driver: Path

    @property
    def on_host(self) -> bool:
        """Whether this process runs on the host itself, and may start its programs."""
        return self.root == Path("/")


@dataclass(frozen=True)
class Card:
    """A card as NVML tells of it; `processes` bytes by the host's pid, `error` why it does not answer."""

    index: int
    uuid: str = ""
    model: str = ""
    compute_mode: int = 0
    mig_enabled: bool = False
    processes: Mapping[int, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver: its version, that of its CUDA (12040: 12.4), and the cards."""

    version: str
    cuda: int
    cards: tuple[Card, ...]


@dataclass(frozen=True)
class Runtime:
    """The container runtime's configuration, as its files say; None where they say nothing.

    Attributes:
        kind: `containerd` or `cri-o`.
        file: The configuration, or where it would be.
        generation: The configuration's version; 3 is containerd's since 2.0.
        cdi: Whether CDI is on.
        directories: Where CDI specs are looked for.
        default: The runtime of pods that name none.
        runc: The program of the default runtime.
    """

    kind: str
    file: Path
    generation: int | None = None
    cdi: bool | None = None
    directories: tuple[str, ...] | None = None
    default: str | None = None
    runc: str | None = None


@dataclass(frozen=True)
class Toolkit:
    """NVIDIA's container toolkit: its configuration's file, and whether anybody may ask for cards by environment."""

    file: Path
    by_environment: bool


@dataclass(frozen=True)
class Process:
    """A process that uses a card, by the host's pid.

    Attributes:
        name: Its program.
        pod: The UID of its pod; empty where it is in none.
        identity: As its namespace knows it; None where that cannot be seen.
        pages: The control page in its container by device and inode, of which a container without a slice has none;
            None where its files cannot be seen.
    """

    pid: int
    name: str
    pod: str = ""
    identity: Identity | None = None
    pages: frozenset[tuple[int, int]] | None = None


@dataclass(frozen=True)
class Tenant:
    """A container with a slice, as its pages have it; `age_s` since they were made."""

    pod: str
    container: str
    page: tuple[int, int]
    cards: frozenset[str]
    processes: frozenset[Identity]
    age_s: float = 0


@dataclass(frozen=True)
class Spec:
    """A CDI file: the devices that it names, the tenants' pages that it mounts, or why it cannot be read."""

    file: Path
    devices: tuple[str, ...] = ()
    pages: tuple[Path, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Node:
    """Facts; each may be unknown by itself.

    Attributes:
        specs: By directory; None for one that is not there.
        sockets: By path: why nobody answers there, empty where somebody does.
        registered: How many ids of which resource the kubelet has from device plugins.
        versions: What programs of the host say of themselves.
        processes: Those that use a card, by the host's pid.
        living: UIDs of pods that have a process.
        names: The resources' names.
    """

    places: Places
    driver: Fact[Driver] = UNREAD
    device_files: Fact[frozenset[str]] = UNREAD
    driver_files: Fact[frozenset[str]] = UNREAD
    runtime: Fact[Runtime] = UNREAD
    toolkit: Fact[Toolkit | None] = UNREAD
    versions: Mapping[str, Fact[str]] = field(default_factory=dict)
    specs: Mapping[Path, Fact[tuple[Spec, ...] | None]] = field(default_factory=dict)
    sockets: Mapping[Path, Fact[str]] = field(default_factory=dict)
    registered: Fact[Mapping[str, int]] = UNREAD
    processes: Fact[Mapping[int, Process]] = UNREAD
    living: Fact[frozenset[str]] = UNREAD
    tenants: Fact[tuple[Tenant, ...]] = UNREAD
    names: ResourceNames = DEFAULT_NAMES

    def version(self, program: str) -> str:
        """What a program of the host says of its version. Raises NotKnownError."""
        fact: Fact[str] = self.versions.get(program, UNREAD)
        return fact.get()
