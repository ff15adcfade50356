"""What a real kube-scheduler tells the members of a group that waits."""

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.faults.field import SOON_S, Field
from tests.integration.extenders import manifest

pytestmark = pytest.mark.cluster


def test_every_member_is_told_what_the_last_one_has_changed(field: Field) -> None:
    """The first is refused because the others do not exist; once they do, and do not fit, it says that."""
    members = [f"member-{number}" for number in range(4)]
    join(field, members[0])
    alone = "1 of the 4 members that it needs exist"
    wait_for("the first to be refused", lambda: alone in field.said(members[0]), SOON_S)
    for name in members[1:]:
        join(field, name)
    short = "group default/train: 3 of the 4 members that it needs fit at once"
    wait_for("all to be told", lambda: all(short in field.said(name) for name in members), SOON_S)
    assert not any(field.is_bound(name) for name in members)


def join(field: Field, name: str) -> None:
    """A member, which needs a card, for a group that needs four."""
    body = manifest(12, name)
    body["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
    body["metadata"]["annotations"] = {"aliquot.dev/group-min-members": "4"}
    field.kubectl.create(body)
