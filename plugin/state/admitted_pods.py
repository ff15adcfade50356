"""Who was let in by the gate, kept in one file a pod so that a restart of this agent forgets nobody.

A tenancy is written before anything of it is made (pages, CDI spec) and removed after everything of it is
gone, so whatever instant the agent is killed at, the file says what may exist.
"""

import logging
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from aliquot.plugin.util.atomic_files import quarantine, remove_leftovers, write_durable
from aliquot.request.placement import Placement, PlacementError, decode_placement, encode_placement

log = logging.getLogger(__name__)

VERSION = 1


@dataclass(frozen=True)
class AdmittedPod:
    """A pod that was let in. `placement` is None for pods that only have MIG instances.

    `nonces` names, by container, the CDI devices that stand for it. A tenancy is `recovered` when its file
    was lost and its placement had to be read off the pages, which know only containers that were started.
    """

    pod_uid: str
    namespace: str
    pod: str
    placement: Placement | None = None
    nonces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    recovered: bool = False

    def with_nonces(self, nonces: Mapping[str, tuple[str, ...]]) -> "AdmittedPod":
        """The same tenancy with the nonces of some more containers."""
        merged = {
            name: tuple(dict.fromkeys((*self.nonces.get(name, ()), *nonces.get(name, ()))))
            for name in (*self.nonces, *nonces)
        }
        return replace(self, nonces=merged)

    @property
    def all_nonces(self) -> frozenset[str]:
        """The nonces of all containers."""
        return frozenset(nonce for nonces in self.nonces.values() for nonce in nonces)


class _File(msgspec.Struct, kw_only=True):
    version: int
    pod_uid: str
    namespace: str
    pod: str
    placement: str | None
    nonces: dict[str, tuple[str, ...]]
    recovered: bool = False
    checksum: str = ""
    """CRC-32 of the same file without it; empty in files of versions that wrote none."""


class AdmittedPods:
    """All tenancies of this node, in memory and on disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._by_uid: dict[str, AdmittedPod] = {}
        directory.mkdir(parents=True, exist_ok=True)
        remove_leftovers(directory)
        for path in sorted(directory.glob("*.json")):
            self._load(path)

    def __iter__(self) -> Iterator[AdmittedPod]:
        return iter(tuple(self._by_uid.values()))

    def get(self, pod_uid: str) -> AdmittedPod | None:
        """The tenancy of a pod, if it was let in."""
        return self._by_uid.get(pod_uid)

    def save(self, admitted: AdmittedPod) -> None:
        """Keeps a tenancy; on disk when this returns. Raises OSError, and then nothing has changed."""
        if self._by_uid.get(admitted.pod_uid) == admitted:
            return
        write_durable(self._path(admitted.pod_uid), encode(admitted))
        self._by_uid[admitted.pod_uid] = admitted

    def remove(self, pod_uid: str) -> None:
        """Forgets a tenancy, after all that belonged to it is gone."""
        self._path(pod_uid).unlink(missing_ok=True)
        self._by_uid.pop(pod_uid, None)

    def _path(self, pod_uid: str) -> Path:
        return self._directory / f"{pod_uid}.json"

    def _load(self, path: Path) -> None:
        try:
            admitted = decode(path.read_bytes())
        except (ValueError, PlacementError) as error:
            log.error("tenancy %s cannot be read (%s): set aside as %s", path, error, quarantine(path))  # noqa: TRY400
        else:
            self._by_uid[admitted.pod_uid] = admitted


def encode(admitted: AdmittedPod) -> bytes:
    """The file's content."""
    file = _File(
        version=VERSION,
        pod_uid=admitted.pod_uid,
        namespace=admitted.namespace,
        pod=admitted.pod,
        placement=encode_placement(admitted.placement) if admitted.placement else None,
        nonces=dict(admitted.nonces),
        recovered=admitted.recovered,
    )
    return msgspec.json.encode(msgspec.structs.replace(file, checksum=checksum_of(file)))


def checksum_of(file: _File) -> str:
    """What tells a file that was damaged: JSON with another digit is JSON still, and would be another promise."""
    return f"{zlib.crc32(msgspec.json.encode(msgspec.structs.replace(file, checksum=''))):08x}"


def decode(content: bytes) -> AdmittedPod:
    """Reads a file's content. Raises ValueError (msgspec's, PlacementError or ours)."""
    file = msgspec.json.decode(content, type=_File)
    if file.version != VERSION:
        raise ValueError(f"version {file.version}; this program reads {VERSION}")
    if file.checksum and file.checksum != checksum_of(file):
        raise ValueError("checksum does not match")
    placement = decode_placement(file.placement) if file.placement else None
    return AdmittedPod(file.pod_uid, file.namespace, file.pod, placement, file.nonces, file.recovered)
