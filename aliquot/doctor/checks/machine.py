"""A node's driver, its container runtime and what they say of cards."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from aliquot.doctor.facts.node import Card, Node, usual
from aliquot.doctor.facts.node_reader import DRIVER_LIBRARIES
from aliquot.doctor.facts.versions import (
    CDI_CONTAINERD,
    NEWEST_CUDA,
    OLDEST_CONTAINERD,
    OLDEST_DRIVER,
    SAFE_RUNC,
    SAFE_TOOLKIT,
    read_version,
    written,
)
from aliquot.doctor.finding import Told, count, failure, not_checked, ok, some, warning

CONTROL_FILES = ("nvidiactl", "nvidia-uvm")
EXCLUSIVE = {1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
"""Compute modes in which a card takes no second process, as NVML counts them."""
CONTAINERD_3 = 3
"""The version of a configuration that only containerd 2 and later reads."""


def driver(node: Node) -> Iterator[Told]:
    """It answers, it is no older than what the agent asks of it, and no newer than the interceptor knows."""
    if node.driver.reason:
        yield failure(
            f"no NVIDIA driver answers: {node.driver.reason}",
            "Install the driver (nvidia-smi has to work). In the agent's pod NVIDIA's container runtime brings NVML: "
            "see agent.runtimeClassName and agent.driverRoot in docs/chart.md.",
        )
        return
    found = node.driver.get()
    version = read_version(found.version)
    cuda = f"{found.cuda // 1000}.{found.cuda % 1000 // 10}"
    if version is None or version < OLDEST_DRIVER:
        yield failure(
            f"the driver is {found.version}; before {written(OLDEST_DRIVER)} it does not tell what each process has.",
            f"Install {written(OLDEST_DRIVER)} or later.",
        )
    elif found.cuda > NEWEST_CUDA:
        yield warning(
            f"the driver's CUDA is {cuda}, newer than the interceptor's table: what is new in it is not counted.",
            "Look for a newer Aliquot (make -C tests check-new-cuda names what is new).",
        )
    else:
        yield ok(f"driver {found.version}, CUDA {cuda}, {count(len(found.cards), 'card')}")
    missing = [name for name in DRIVER_LIBRARIES if name not in node.driver_files.get()]
    if missing:
        yield failure(
            f"below {node.places.driver} there is no {some(missing)}, which tenants are to be given.",
            "Tell the agent where the driver is: agent.driverRoot, agent.driverPaths (docs/chart.md).",
            missing,
        )


def cards(node: Node) -> Iterator[Told]:
    """Every card answers, and takes more than one process."""
    found = node.driver.get().cards
    silent = [f"card {card.index} ({card.error})" for card in found if card.error]
    alone = [f"card {card.index} ({EXCLUSIVE[card.compute_mode]})" for card in found if _alone(card)]
    if not found:
        yield failure("the driver has no card.", "See nvidia-smi, lspci and dmesg.")
    if silent:
        yield failure(
            f"cards that do not answer: {some(silent)}",
            "See dmesg for XIDs; reset the card, or reboot.",
            silent,
        )
    if alone:
        yield failure(
            f"cards that take one process alone, by their compute mode: {some(alone)}",
            "nvidia-smi -c DEFAULT; see who sets it: an MPS control daemon does.",
            alone,
        )
    if found and not silent and not alone:
        mig = sum(card.mig_enabled for card in found)
        yield ok(f"{count(len(found), 'card')} in compute mode Default, {mig} of them in MIG mode")


def _alone(card: Card) -> bool:
    return card.compute_mode in EXCLUSIVE


def device_files(node: Node) -> Iterator[Told]:
    """The device nodes that containers are given."""
    have = node.device_files.get()
    missing = [name for name in CONTROL_FILES if name not in have]
    if missing:
        yield failure(
            f"there is no {some(f'/dev/{name}' for name in missing)}: CUDA does not start in any container.",
            "nvidia-modprobe -u -c=0, or start nvidia-persistenced at boot.",
            missing,
        )
    else:
        yield ok(
            f"{count(sum(name[6:].isdigit() for name in have), 'device node')} of cards, nvidiactl and nvidia-uvm"
        )


def runtime(node: Node) -> Iterator[Told]:
    """The configuration of containerd or CRI-O: CDI is on, and it reads the agent's directory."""
    found = node.runtime.get()
    wanted = usual(node.places.cdi)
    read = {usual(Path(one)) for one in found.directories} if found.directories is not None else None
    if found.cdi is False:
        yield failure(
            f"{found.file} switches CDI off: no tenant's container starts.",
            "Set enable_cdi = true in its CRI section, and restart containerd.",
        )
        return
    if read is not None and wanted not in read:
        yield failure(
            f"{found.file} has {found.kind} read CDI specs in {some(map(str, read))}, and the agent writes them to "
            f"{node.places.cdi}.",
            f"Add {node.places.cdi} to cdi_spec_dirs, or set agent.cdiDir.",
        )
        return
    yield from _by_version(node, found.cdi, found.generation)


def _by_version(node: Node, said: bool | None, generation: int | None) -> Iterator[Told]:
    """What an unwritten enable_cdi means depends on containerd's version."""
    found = node.runtime.get()
    if said or generation == CONTAINERD_3:
        yield ok(f"{found.kind} does CDI ({found.file})")
        return
    version = read_version(node.version("containerd"))
    if version is None:
        yield not_checked(
            f"containerd's version cannot be read, and {found.file} does not say whether CDI is on"
        )
    elif version < OLDEST_CONTAINERD:
        yield failure(
            f"containerd {written(version)} has no CDI.", f"Use {written(CDI_CONTAINERD)} or later."
        )
    elif version < CDI_CONTAINERD:
        yield failure(
            f"containerd {written(version)} has CDI off unless {found.file} says otherwise, and it does not.",
            "Set enable_cdi = true in its CRI section, and restart containerd.",
        )
    else:
        yield ok(f"containerd {written(version)} does CDI by itself")


def runc(node: Node) -> Iterator[Told]:
    """Old versions let containers out."""
    text = node.version("runc")
    version = read_version(text)
    if version is None or "runc" not in text:
        yield not_checked(
            f"the runtime's program says {text.splitlines()[0] if text else 'nothing'}: it is no runc"
        )
        return
    safe = SAFE_RUNC.get(version[:2], (1, 4, 0))
    if version < safe:
        yield warning(
            f"runc {written(version)} has ways out of a container (CVE-2025-31133, CVE-2025-52565, CVE-2025-52881); "
            "a distribution may have mended them under the old number.",
            "Install 1.2.8, 1.3.3, 1.4.0 or later, or your distribution's security update.",
        )
    else:
        yield ok(f"runc {written(version)}")


def toolkit(node: Node) -> Iterator[Told]:
    """NVIDIA's container toolkit gives no card to who only asks by environment."""
    found = node.toolkit.get()
    if found is None:
        yield ok("NVIDIA's container toolkit is not configured here")
        return
    default = "" if node.runtime.reason else node.runtime.get().default or ""
    whose = "of every pod" if "nvidia" in default else "of pods in the RuntimeClass nvidia"
    if found.by_environment:
        yield warning(
            f"an image's NVIDIA_VISIBLE_DEVICES gives cards to containers {whose}, with or without a slice.",
            f"In {found.file}: accept-nvidia-visible-devices-envvar-when-unprivileged = false. The agent, which "
            "gets its cards by that variable, then needs CDI mode or agent.privileged=true.",
        )
    else:
        yield ok(f"{found.file} takes no NVIDIA_VISIBLE_DEVICES of containers without privileges")
    yield from _toolkit_version(node)


def _toolkit_version(node: Node) -> Iterator[Told]:
    version = read_version(node.version("nvidia-ctk"))
    if version and version < SAFE_TOOLKIT:
        yield warning(
            f"NVIDIA Container Toolkit {written(version)} lets an image become root on the node (CVE-2025-23266).",
            f"Install {written(SAFE_TOOLKIT)} or later.",
        )


def cdi(node: Node) -> Iterator[Told]:
    """The directories of CDI specs, and what is in them."""
    wanted = usual(node.places.cdi)
    specs = {place: node.specs[place].get() for place in sorted(node.specs)}
    if specs.get(wanted) is None:
        yield failure(
            f"there is no directory {node.places.cdi}: tenants' containers find no device.",
            "The agent makes it when it admits its first container; where none starts, see agent.cdiDir and its mount.",
        )
    every = {place: found for place, found in specs.items() if found}
    torn = [f"{spec.file} ({spec.error})" for found in every.values() for spec in found if spec.error]
    if torn:
        yield warning(
            f"CDI files that cannot be read: {some(torn)}",
            "Remove them, or have who wrote them write them anew.",
            torn,
        )
    twice = [
        f"{device} in {place}"
        for place, found in every.items()
        for device, number in Counter(d for spec in found for d in spec.devices).items()
        if number > 1
    ]
    if twice:
        yield failure(
            f"devices that two files of a directory define, so that neither is found: {some(twice)}",
            "Remove one of the files.",
            twice,
        )
    if specs.get(wanted) is not None and not torn and not twice:
        listed = ", ".join(f"{len(found)} in {place}" for place, found in every.items()) or "none yet"
        yield ok(f"CDI files: {listed}")
