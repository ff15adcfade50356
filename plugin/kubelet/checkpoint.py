"""Reads the kubelet's own notes of which container holds which device ids.

`device-plugins/kubelet_internal_checkpoint` is private to the kubelet, but it is the only place that tells
of plain init containers, of pod UIDs, and of the answers Allocate gave. It is already written when
PreStartContainer is called. So it is read with tolerance: what cannot be understood is left out, and
PodResources, which is a promised interface, speaks first wherever it can.
"""

import base64
import binascii
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from aliquot.kube.objects import UNREADABLE
from aliquot.plugin.kubelet.device_plugin import CDI_KIND
from aliquot.plugin.pb.deviceplugin.v1beta1 import api_pb2

log = logging.getLogger(__name__)

FILE_NAME = "kubelet_internal_checkpoint"


@dataclass(frozen=True)
class Entry:
    """What one container holds of one resource. `nonce` is empty where the kept answer cannot be read."""

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]
    nonce: str = ""


class _Entry(msgspec.Struct, rename={"pod_uid": "PodUID"}):
    pod_uid: str = ""
    container: str = msgspec.field(default="", name="ContainerName")
    resource: str = msgspec.field(default="", name="ResourceName")
    ids: dict[str, list[str]] = msgspec.field(default_factory=dict, name="DeviceIDs")
    answer: str = msgspec.field(default="", name="AllocResp")


class _Data(msgspec.Struct):
    entries: list[_Entry] | None = msgspec.field(default=None, name="PodDeviceEntries")


class _Checkpoint(msgspec.Struct):
    data: _Data = msgspec.field(name="Data")


def read_checkpoint(path: Path) -> tuple[Entry, ...]:
    """Every entry of the kubelet's checkpoint; none if it is missing or cannot be understood."""
    try:
        raw = msgspec.json.decode(path.read_bytes(), type=_Checkpoint)
    except FileNotFoundError:
        return ()
    except (OSError, *UNREADABLE) as error:
        log.warning("the kubelet's checkpoint %s cannot be read: %s", path, error)
        return ()
    return tuple(_entry(one) for one in raw.data.entries or ())


def _entry(raw: _Entry) -> Entry:
    ids = frozenset(one for numa in raw.ids.values() for one in numa)
    return Entry(raw.pod_uid, raw.container, raw.resource, ids, _nonce(raw.answer))


def _nonce(answer: str) -> str:
    """The nonce in a kept answer of Allocate."""
    try:
        response: Any = api_pb2.ContainerAllocateResponse.FromString(base64.b64decode(answer, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return ""
    names = (device.name.partition("=") for device in response.cdi_devices)
    return next((nonce for kind, _, nonce in names if kind == CDI_KIND), "")
