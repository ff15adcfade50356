"""The auditor of the real cluster finds what is wrong: an auditor that cannot fail has seen nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.libshim.control_page import Control, read_control, update_control
from tests.cluster.auditor import audit, leftovers, specs_of
from tests.cluster.installation import RUN, Installation
from tests.cluster.test_journey import client, said

pytestmark = pytest.mark.cluster


@pytest.fixture
def page(installed: Installation) -> Path:
    """The control page of a pod that computes."""
    installed.kubectl.apply(client("watched"))
    said(installed, "watched", "ready")
    uid = installed.kubectl.get("pods", "watched")["metadata"]["uid"]
    return installed.node.box.path(f"{RUN}/tenants/{uid}/main/control")


def test_a_limit_that_is_not_what_was_granted_is_found(installed: Installation, page: Path):
    """One MiB more in the page than in the placement, and all is well again without it."""
    granted = read_control(page)
    update_control(page, _more(granted, 1 << 20))
    with pytest.raises(AssertionError):
        audit(installed)
    update_control(page, granted)
    audit(installed)


def test_a_card_that_was_not_granted_is_found(installed: Installation, page: Path):
    """A CDI file that names the neighbour's device node."""
    (spec,) = specs_of(installed)
    text = spec.read_text()
    minors = {"/dev/nvidia0": "/dev/nvidia1", "/dev/nvidia1": "/dev/nvidia0"}
    there = next(name for name in minors if f'"{name}"' in text)
    spec.write_text(text.replace(f'"{there}"', f'"{minors[there]}"'))
    with pytest.raises(AssertionError):
        audit(installed)
    spec.write_text(text)


def test_what_a_running_pod_has_would_be_found_without_it(installed: Installation, page: Path):
    """Pages, a CDI file, memory on a card and a process: what must not be left when a pod has gone."""
    found = leftovers(installed)
    assert page.parts[-3] in found
    assert {path.name for path in specs_of(installed)} <= set(found)
    assert any(word.startswith("GPU-") for word in found)
    assert any(word.startswith("process ") for word in found)


def _more(control: Control, extra: int) -> Control:
    cards = tuple(replace(card, memory_bytes=card.memory_bytes + extra) for card in control.cards)
    return replace(control, cards=cards)
