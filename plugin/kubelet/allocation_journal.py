"""Which nonce was promised for which device ids: written and synced before Allocate answers.

The kubelet keeps Allocate's answer for as long as the pod lives and uses it again for each restart of the
container, so a nonce that was answered must be known for ever after, whatever kills this process. The file
is a list of lines, `<crc32 of the JSON> <JSON>`, appended and synced; a line cut short by a kill was never
answered and is dropped, anything else that cannot be read sets the file aside. What a lost line said can
still be learned from the kubelet's own checkpoint, which keeps the answers (see `checkpoint.py`).
"""

import logging
import os
import threading
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from aliquot.plugin.util.atomic_files import quarantine, remove_leftovers, sync_directory, write_durable

log = logging.getLogger(__name__)


class Allocation(msgspec.Struct, frozen=True):
    """One answer of Allocate: the CDI name `nonce` stands for these device ids of this resource."""

    nonce: str
    resource: str
    ids: frozenset[str]


class JournalError(Exception):
    """A line of the journal is not what was written; names the line's number."""


class AllocationJournal:
    """The allocations answered so far, in order. Safe to use from several threads; reading never waits for the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._by_nonce: dict[str, Allocation] = {}
        self._dirty = False
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, f".{path.name}.")
        self._load()

    def record(self, allocations: Iterable[Allocation]) -> None:
        """Adds allocations and syncs them to disk.

        A disk that does not take them is no reason to fail the pod for good: they stay in memory, the
        kubelet's checkpoint will hold them too, and the next change writes the whole file again.
        """
        with self._writing:
            with self._lock:
                new = [one for one in allocations if one.nonce not in self._by_nonce]
                self._by_nonce.update((one.nonce, one) for one in new)
            try:
                self._rewrite() if self._dirty else self._append(new)
            except OSError as error:
                self._dirty = True
                log.error("journal %s not written: %s; its new lines live in memory only", self._path, error)  # noqa: TRY400

    def forget(self, nonces: Collection[str]) -> None:
        """Drops allocations nobody can use any more."""
        with self._writing:
            with self._lock:
                dropped = [self._by_nonce.pop(nonce, None) for nonce in nonces]
            if not any(dropped):
                return
            try:
                self._rewrite()
            except OSError as error:
                self._dirty = True
                log.warning("journal %s not shortened: %s", self._path, error)

    def holding(self, resource: str, ids: Collection[str]) -> tuple[Allocation, ...]:
        """Every allocation of exactly these ids, oldest first."""
        wanted = frozenset(ids)
        with self._lock:
            return tuple(a for a in self._by_nonce.values() if a.resource == resource and a.ids == wanted)

    def only_for(self, resource: str, one: str) -> bool:
        """Whether no other resource has this id allocated, as one of the domain before may have."""
        with self._lock:
            return all(a.resource == resource or one not in a.ids for a in self._by_nonce.values())

    def all(self) -> tuple[Allocation, ...]:
        """Every allocation, oldest first."""
        with self._lock:
            return tuple(self._by_nonce.values())

    def _append(self, allocations: Collection[Allocation]) -> None:
        if not allocations:
            return
        created = not self._path.exists()
        with self._path.open("ab") as file:
            file.write(b"".join(map(encode_line, allocations)))
            file.flush()
            os.fsync(file.fileno())
        if created:
            sync_directory(self._path.parent)

    def _rewrite(self) -> None:
        write_durable(self._path, b"".join(map(encode_line, self._by_nonce.values())))
        self._dirty = False

    def _load(self) -> None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        whole, _, cut = content.rpartition(b"\n")
        damaged = self._read_lines(whole.splitlines())
        if damaged:
            aside = quarantine(self._path)
            log.error("journal %s is damaged (%s): set aside as %s", self._path, damaged, aside)
        if damaged or cut:
            self._rewrite()

    def _read_lines(self, lines: Iterable[bytes]) -> str:
        """Takes over every good line; returns what is wrong with the first bad one, or nothing."""
        damaged = ""
        for number, line in enumerate(lines, start=1):
            try:
                allocation = decode_line(line)
            except (JournalError, ValueError) as error:
                damaged = damaged or f"line {number}: {error}"
            else:
                self._by_nonce[allocation.nonce] = allocation
        return damaged


def encode_line(allocation: Allocation) -> bytes:
    """One line of the journal; the checksum covers the JSON's bytes as they lie on the disk."""
    body = msgspec.json.encode(allocation)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def decode_line(line: bytes) -> Allocation:
    """The allocation of one line. Raises JournalError or msgspec's ValueErrors."""
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        raise JournalError("checksum does not match")
    return msgspec.json.decode(body, type=Allocation)
