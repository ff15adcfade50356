"""CDI files as the pocket cluster's kubelet reads them."""

import json
from pathlib import Path

import pytest

from aliquot.sandbox.cluster.kubelet.cdi import UnresolvableError, resolve


def write(directory: Path, card: str) -> None:
    """A spec of one device, in place of what was there."""
    device = {"name": "one", "containerEdits": {"env": [f"CARD={card}"]}}
    (directory / "spec.json").write_text(json.dumps({"kind": "example.com/card", "devices": [device]}))


def card_in(directory: Path) -> str:
    """What the device says."""
    return resolve([directory], ["example.com/card=one"]).env["CARD"]


def test_a_file_that_is_written_again_is_read_again(tmp_path: Path):
    """Though one that has not changed is parsed once."""
    write(tmp_path, "first")
    assert card_in(tmp_path) == card_in(tmp_path) == "first"
    write(tmp_path, "another")
    assert card_in(tmp_path) == "another"
    (tmp_path / "spec.json").unlink()
    with pytest.raises(UnresolvableError):
        card_in(tmp_path)
