"""The placement annotation, and what a placement costs."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.request.core_policy import CoreMode, CorePolicy
from aliquot.request.placement import (
    CardShare,
    Charge,
    ContainerPlacement,
    Placement,
    PlacementError,
    decode_placement,
    encode_placement,
    read_placement,
)
from aliquot.request.pod_request import ContainerKind

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=63)
SHARES = st.builds(CardShare, NAMES, st.integers(1, 1 << 40), st.integers(0, 100), st.booleans())
CARDS = st.lists(SHARES, min_size=1, max_size=4, unique_by=lambda share: share.uuid).map(tuple)
POLICIES = st.builds(
    CorePolicy,
    st.none() | st.sampled_from(CoreMode),
    st.none() | st.integers(1, 100),
    st.none() | st.integers(0, 9),
)
CONTAINERS = st.lists(
    st.builds(ContainerPlacement, NAMES, st.sampled_from(ContainerKind), CARDS, policy=POLICIES),
    min_size=1,
    max_size=5,
    unique_by=lambda container: container.name,
).map(lambda containers: tuple(sorted(containers, key=lambda c: c.kind is ContainerKind.REGULAR)))
PLACEMENTS = st.builds(Placement, NAMES, NAMES, CONTAINERS)


@given(PLACEMENTS)
def test_a_placement_survives_its_annotation(placement: Placement):
    """What is written is what is read."""
    assert decode_placement(encode_placement(placement)) == placement


@given(PLACEMENTS, st.data())
def test_a_placement_cut_short_is_refused(placement: Placement, data: st.DataObject):
    """No prefix of an annotation is another annotation."""
    text = encode_placement(placement)
    with pytest.raises(PlacementError):
        decode_placement(text[: data.draw(st.integers(0, len(text) - 1))])


@given(st.text())
def test_no_text_breaks_the_decoder(text: str):
    """Whatever an annotation holds, it is a placement or it is refused with a reason."""
    with pytest.raises(PlacementError, match="placement"):
        decode_placement(text)


GOOD: dict[str, Any] = {
    "version": 1,
    "podUID": "u",
    "node": "n",
    "containers": [
        {
            "name": "i",
            "kind": "init",
            "cards": [{"uuid": "A", "memoryMiB": 5, "cores": 10, "exclusive": False}],
        },
        {
            "name": "m",
            "kind": "regular",
            "cards": [{"uuid": "A", "memoryMiB": 3, "cores": 0, "exclusive": False}],
        },
    ],
}


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List the way to every value within a JSON document."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from paths(inner, (*path, key))


def parent_of(document: Any, path: tuple[Any, ...]) -> Any:
    """Return what holds the value at a path."""
    for key in path[:-1]:
        document = document[key]
    return document


@pytest.mark.parametrize("text", ['{"a":' * 100_000, '{"version":1,"a":' + "[" * 100_000])
def test_a_bottomless_annotation_is_refused_like_any_other(text: str):
    """Nesting that exhausts the decoder is a bad placement, not a crash."""
    with pytest.raises(PlacementError, match="no placement"):
        decode_placement(text)


FIELDS = [path for path in paths(GOOD) if isinstance(path[-1], str)]


@pytest.mark.parametrize("path", FIELDS, ids=str)
def test_every_missing_field_is_refused_by_name(path: tuple[Any, ...]):
    """Nothing has a default: an annotation says everything or is refused."""
    document = deepcopy(GOOD)
    del parent_of(document, path)[path[-1]]
    with pytest.raises(PlacementError, match=path[-1]):
        decode_placement(json.dumps(document))


@pytest.mark.parametrize("path", FIELDS, ids=str)
@pytest.mark.parametrize(
    "junk", [None, [], {}, -1, 10**30, 1.5, "", "x" * 300], ids=lambda junk: str(junk)[:9]
)
def test_every_field_of_another_kind_is_refused_by_path(path: tuple[Any, ...], junk: Any):
    """A value of the wrong type or range is refused, with the place where it stands."""
    document = deepcopy(GOOD)
    parent_of(document, path)[path[-1]] = junk
    with pytest.raises(PlacementError, match=path[-1]):
        decode_placement(json.dumps(document))


def test_every_unknown_field_is_refused():
    """Version 1 has exactly its fields: more of them would be a promise that this program does not keep."""
    for holder in ((), ("containers", 0), ("containers", 1, "cards", 0)):
        document = deepcopy(GOOD)
        parent_of(document, (*holder, "-"))["extra"] = 1
        with pytest.raises(PlacementError, match="extra"):
            decode_placement(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(version=2), "version 2"),
        (lambda d: d["containers"].append(d["containers"][1]), "container 'm' is named twice"),
        (
            lambda d: d["containers"][0]["cards"].append(d["containers"][0]["cards"][0]),
            "card of container 'i' 'A'",
        ),
        (lambda d: d["containers"].reverse(), "out of order"),
        (lambda d: d["containers"][0]["cards"].extend(d["containers"][0]["cards"] * 16), "length <= 16"),
        (lambda d: d["containers"][0].update(kind="daemon"), "kind"),
        (lambda d: d["containers"][0]["cards"][0].update(cores=101), "cores"),
        (lambda d: d["containers"][0]["cards"][0].update(memoryMiB=0), "memoryMiB"),
        (lambda d: d["containers"][0].update(coreMode="fast"), "coreMode"),
        (lambda d: d["containers"][0].update(coreLimit=101), "coreLimit"),
        (lambda d: d["containers"][0].update(priority=10), "priority"),
    ],
)
def test_a_contradiction_is_refused_with_its_reason(change: Any, words: str):
    """What a schema cannot see is checked all the same."""
    document = deepcopy(GOOD)
    change(document)
    with pytest.raises(PlacementError, match=words):
        decode_placement(json.dumps(document))


def test_a_placement_that_could_not_be_read_back_is_not_written():
    """Mistakes surface where they are made, not on the node."""
    with pytest.raises(PlacementError):
        encode_placement(Placement("u", "n", ()))


def test_only_the_pods_own_placement_is_believed():
    """An annotation copied from another pod is refused; none at all is simply none yet."""
    text = json.dumps(GOOD)
    assert read_placement({}, "a", "u") is None
    assert read_placement({"a": text}, "a", "u") == decode_placement(text)
    with pytest.raises(PlacementError, match="for pod u, not for v"):
        read_placement({"a": text}, "a", "v")


INIT, SIDECAR, REGULAR = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.REGULAR


def place(*containers: tuple[ContainerKind, str, int, int]) -> Placement:
    """Place containers of (kind, card, MiB, cores)."""
    return Placement(
        "u", "n", tuple(ContainerPlacement(f"c{i}", kind, (CardShare(card, mib, cores),))
                        for i, (kind, card, mib, cores) in enumerate(containers)),
    )  # fmt: skip


CHARGES: dict[str, tuple[Placement, dict[str, Charge]]] = {
    "regular containers add up": (
        place((REGULAR, "A", 4, 10), (REGULAR, "A", 2, 20)), {"A": Charge(6, 30, 2)}),
    "init containers only count where they are more": (
        place((INIT, "A", 9, 5), (INIT, "A", 3, 40), (REGULAR, "A", 4, 10), (REGULAR, "A", 2, 20)),
        {"A": Charge(9, 40, 2)}),
    "a sidecar runs beside later init containers, not earlier ones": (
        place((INIT, "A", 9, 0), (SIDECAR, "A", 2, 0), (INIT, "A", 8, 0), (REGULAR, "A", 1, 0)),
        {"A": Charge(10, 0, 2, uncapped=2)}),
    "sidecars add to the regular containers": (
        place((SIDECAR, "A", 2, 10), (REGULAR, "A", 1, 10)), {"A": Charge(3, 20, 2)}),
    "each card on its own": (
        place((INIT, "A", 9, 1), (REGULAR, "B", 4, 10)), {"A": Charge(9, 1, 1), "B": Charge(4, 10, 1)}),
}  # fmt: skip


@pytest.mark.parametrize(("placement", "charges"), CHARGES.values(), ids=CHARGES)
def test_cards_are_charged_for_the_pods_peak(placement: Placement, charges: dict[str, Charge]):
    """Kubernetes' rule for init containers and sidecars, for each card and each measure."""
    assert placement.charges() == charges


def test_a_card_held_alone_once_is_held_alone():
    """Exclusiveness of one container holds for the pod's whole life."""
    alone = ContainerPlacement("i", INIT, (CardShare("A", 5, 100, exclusive=True),))
    beside = ContainerPlacement("m", REGULAR, (CardShare("A", 1, 0),))
    assert Placement("u", "n", (alone, beside)).charges() == {
        "A": Charge(5, 100, 1, exclusive=True, uncapped=1)
    }


@given(PLACEMENTS)
def test_no_card_is_charged_less_than_any_moment_takes(placement: Placement):
    """Played through as a kubelet would, no step of the pod's life exceeds the charge, and one reaches it."""
    charges = placement.charges()
    for uuid, charge in charges.items():
        moments = list(memory_over_time(placement, uuid))
        assert max(moments) == charge.memory_mib


def memory_over_time(placement: Placement, uuid: str) -> Iterator[int]:
    """Play a pod's life: memory on one card after each container starts (init containers then end)."""
    running: list[ContainerPlacement] = []
    for container in placement.containers:
        running.append(container)
        yield sum(share.memory_mib for c in running for share in c.cards if share.uuid == uuid)
        if container.kind is INIT:
            running.remove(container)
