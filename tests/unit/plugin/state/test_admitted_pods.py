"""A tenancy's file is read as it was written, or not at all."""

import json

import pytest

from aliquot.plugin.state.admitted_pods import AdmittedPod, decode, encode
from aliquot.request.placement import CardShare, ContainerPlacement, Placement, PlacementError
from aliquot.request.pod_request import ContainerKind

SHARES = (CardShare("GPU-1", 10240, 30), CardShare("GPU-2", 10240, 30))
PLACEMENT = Placement("uid", "node", (ContainerPlacement("main", ContainerKind.REGULAR, SHARES),))
TENANCY = AdmittedPod("uid", "default", "pod", PLACEMENT, {"main": ("nonce",)})


def test_any_flipped_bit_is_noticed_or_changes_nothing():
    """A promise that is another one by a digit would let a second pod have the same memory."""
    content = encode(TENANCY)
    for place in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        try:
            read = decode(bytes(damaged))
        except (ValueError, PlacementError):
            continue
        assert read == TENANCY, f"bit {place}: {bytes(damaged)!r}"


def test_files_of_versions_that_wrote_no_checksum_are_read():
    """An upgrade keeps who was let in."""
    older = json.loads(encode(TENANCY))
    del older["checksum"]
    assert decode(json.dumps(older).encode()) == TENANCY


def test_a_newer_version_is_named():
    """It is set aside, and the pages say what it said."""
    newer = {**json.loads(encode(TENANCY)), "version": 2}
    with pytest.raises(ValueError, match="version 2; this program reads 1"):
        decode(json.dumps(newer).encode())
