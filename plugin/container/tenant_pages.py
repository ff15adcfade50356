"""The directories of tenants: two pages for each container, on tmpfs, outliving this agent.

    <run-dir>/tenants/<pod UID>/<container>/{control,usage}

A page keeps its inode as long as its container may live, because the container holds that inode and not
the name. Where the container has a volume for its usage page, `usage` is a link to the page in that volume.
"""

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from aliquot.api.names import USAGE_FILE
from aliquot.libshim.control_page import (
    CardLimit,
    Control,
    change_control,
    create_control,
    read_control,
    touch_granter,
)
from aliquot.libshim.page_file import PageError, PageFile
from aliquot.libshim.usage_page import ProcessUsage, Usage, clear_usage, create_usage, read_usage
from aliquot.node.processes import Processes, ProcessName, ProcessTable
from aliquot.plugin.util.atomic_files import make_private, remove_leftovers

log = logging.getLogger(__name__)
EVERYBODY = Processes()


@dataclass(frozen=True)
class TenantPages:
    """The pages of one container; `directory` is where they are on the host."""

    pod_uid: str
    container: str
    directory: Path

    @cached_property
    def control(self) -> PageFile:
        """The agent's page."""
        return PageFile(self.directory / "control")

    @cached_property
    def usage(self) -> PageFile:
        """The tenant's page."""
        return PageFile(self.directory / USAGE_FILE)

    @property
    def has_own_volume(self) -> bool:
        """Whether the usage page is in a volume of the container's own."""
        return self.usage.name.is_symlink()


class TenantDirectories:
    """All tenants' pages of this node."""

    def __init__(self, run_dir: Path, processes: Processes = EVERYBODY) -> None:
        """`processes`: those of the host."""
        self.processes = processes
        self._known: dict[tuple[str, str], TenantPages] = {}
        self._root = run_dir / "tenants"
        make_private(self._root)

    def pages(self, pod_uid: str, container: str) -> TenantPages:
        """Where the pages of a container are or will be; they stay open until they are removed."""
        here = TenantPages(pod_uid, container, self._root / pod_uid / container)
        return self._known.setdefault((pod_uid, container), here)

    def of_pod(self, pod_uid: str) -> tuple[TenantPages, ...]:
        """The containers of a pod that have pages."""
        with contextlib.suppress(FileNotFoundError):
            names = sorted(entry.name for entry in (self._root / pod_uid).iterdir())
            return tuple(self.pages(pod_uid, name) for name in names)
        return ()

    def pod_uids(self) -> frozenset[str]:
        """Pods that have pages."""
        return frozenset(entry.name for entry in self._root.iterdir())

    def __iter__(self) -> Iterator[TenantPages]:
        return (tenant for uid in sorted(self.pod_uids()) for tenant in self.of_pod(uid))

    def prepare(
        self, pod_uid: str, container: str, control: Control, volume: Path | None = None
    ) -> TenantPages:
        """Makes the pages of a container that is about to start, or brings them up to date.

        `volume` is where its usage page goes, if it has a volume for it.

        Raises:
            PageError: the limits do not fit a page.
            OSError: the files cannot be written.
        """
        tenant = self.pages(pod_uid, container)
        tenant.directory.mkdir(parents=True, exist_ok=True)
        if volume is not None:
            link_usage(tenant, volume)
        prepare_usage(tenant, self.processes)
        prepare_control(tenant, control)
        if any(card.grant_bytes is not None for card in control.cards):
            # Its first request may come before the first look at it.
            touch_granter(tenant.control, time.monotonic_ns())
        return tenant

    def remove(self, pod_uid: str) -> None:
        """Closes and removes the pages of a pod that is gone. Raises OSError where they cannot be removed."""
        try:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._root / pod_uid)
        finally:
            self._close(pod_uid)

    def _close(self, pod_uid: str) -> None:
        """Closes the pages of a pod, beside the caller: the kernel looks through all locks that are left on them."""
        tenants = [self._known.pop(key) for key in list(self._known) if key[0] == pod_uid]
        pages = [page for tenant in tenants for page in (tenant.control, tenant.usage)]
        with contextlib.suppress(RuntimeError):  # no thread can be started: closed with the last reference
            threading.Thread(target=close_all, args=(pages,), name="aliquot-close").start()


def close_all(pages: Iterable[PageFile]) -> None:
    """Closes pages, whoever still knows them: a file that is open in a volume keeps the kubelet from unmounting it."""
    for page in pages:
        page.close()


def link_usage(tenant: TenantPages, volume: Path) -> None:
    """Has the usage page be in a volume. Raises OSError."""
    name, page = tenant.usage.name, volume / USAGE_FILE
    remove_leftovers(volume, f".{USAGE_FILE}.")
    if page.is_dir() and not page.is_symlink():
        page.rmdir()  # the kubelet makes one where an agent that knew of no volumes has laid no page
    if not name.is_symlink() or name.readlink() != page:
        name.unlink(missing_ok=True)
        name.symlink_to(page)


def prepare_control(tenant: TenantPages, control: Control) -> None:
    """Writes the control page: in place if it has the same cards, anew if it is missing or of no use."""
    try:
        if uuids(read_control(tenant.control)) == uuids(control):
            limit(tenant, control)
            return
    except FileNotFoundError:
        pass
    except PageError as error:
        log.warning("control page made anew: %s", error)
    create_control(tenant.control, control)


def limit(tenant: TenantPages, control: Control) -> None:
    """Writes other limits into the page of a container that may be running; what was measured of it stays.

    Raises:
        PageError: the page is unusable or has other cards; nothing was changed.
        OSError: the file cannot be written.
    """
    change_control(tenant.control, lambda current: with_measured(control, current))


def with_measured(wanted: Control, current: Control | None) -> Control:
    """Limits with what others measure and grant, as it stands in the page; None: a writer died half-way through it."""
    if current is None:
        return wanted
    cards = tuple(map(_with_measured, wanted.cards, current.cards))
    return replace(wanted, cards=cards)


def _with_measured(wanted: CardLimit, current: CardLimit) -> CardLimit:
    kept = replace(
        wanted,
        adjust_bytes=current.adjust_bytes,
        context_bytes=current.context_bytes or wanted.context_bytes,
    )
    if wanted.grant_bytes is None or current.grant_bytes is None:
        return kept
    return granted(kept, current.grant_bytes)


def granted(limit: CardLimit, grant_bytes: int) -> CardLimit:
    """A burst share with another grant; what may go to the host is the rest.

    A grant may be beyond a limit that was lowered: it says what may be in use yet, and the limit what may be taken.
    """
    overflow = None if limit.overflow_bytes is None else max(0, limit.memory_bytes - grant_bytes)
    return replace(limit, grant_bytes=grant_bytes, overflow_bytes=overflow)


def prepare_usage(tenant: TenantPages, processes: Processes = EVERYBODY) -> None:
    """Makes the usage page, or clears what a dead earlier container of the same name left in it."""
    try:
        usage = read_usage(tenant.usage)
    except FileNotFoundError:
        create_usage(tenant.usage)
        return
    except PageError as error:
        log.warning("usage page cleared: %s", error)
        clear_usage(tenant.usage)
        return
    if pristine(usage) or living(usage, tenant.pod_uid, processes.read()):
        return
    clear_usage(tenant.usage)


def pristine(usage: Usage) -> bool:
    """Whether no process has used the page yet."""
    return not usage.processes and not any(card.memory_used_bytes for card in usage.cards)


def living(usage: Usage, pod_uid: str, table: ProcessTable) -> bool:
    """Whether a process of the pod that its page names is alive."""
    return bool(living_processes(usage, pod_uid, table))


def living_processes(usage: Usage, pod_uid: str, table: ProcessTable) -> tuple[ProcessUsage, ...]:
    """Those that a page names, are the pod's and live."""
    return tuple(one for one in usage.processes if table.has(name_in_page(one), pod_uid))


def name_in_page(process: ProcessUsage) -> ProcessName:
    """A process that a page names."""
    return ProcessName(process.pid, process.pid_namespace, process.start_time)


def uuids(control: Control) -> tuple[str, ...]:
    """The cards of a control page, in its order."""
    return tuple(card.uuid for card in control.cards)
