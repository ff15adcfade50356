"""Which nodes are closed to a pod, and which reason is told where several would do."""

from aliquot.scheduler_ext.placement.closed_nodes import ClosedNodes
from aliquot.scheduler_ext.placement.reasons import Reason

NODES = ("foreign", "barred", "full", "kept", "open")
CLOSED = ClosedNodes(
    frozenset({"foreign", "barred"}), {"barred": "a quota"}, frozenset({"full", "away"}), "kept"
)


def test_where_nothing_is_closed_the_very_nodes_are_open() -> None:
    """As a filter call of thousands of nodes has them."""
    assert ClosedNodes(frozenset(), {}, frozenset(), "").open_of(NODES) is NODES


def test_what_is_closed_is_not_open() -> None:
    """For whatever reason."""
    assert CLOSED.open_of(NODES) == ["open"]


def test_each_of_the_nodes_asked_for_has_its_reason_and_a_barred_one_none() -> None:
    """That has the quota's words."""
    assert CLOSED.reasons(NODES) == {
        "foreign": Reason.FOREIGN,
        "full": Reason.HOST_KEPT,
        "kept": Reason.KEPT,
    }


def test_the_nearest_to_having_room_is_told() -> None:
    """CPU is kept for a moment, a node for a large pod for longer, and another plugin's is never ours."""
    assert CLOSED.nearest(NODES) is Reason.HOST_KEPT
    assert CLOSED.nearest(("foreign", "kept")) is Reason.KEPT
    assert CLOSED.nearest(("foreign",)) is Reason.FOREIGN
    assert CLOSED.nearest(("barred",)) is Reason.FOREIGN
