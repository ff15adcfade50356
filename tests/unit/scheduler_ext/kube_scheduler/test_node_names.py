"""Names of nodes that are not read: whatever a body looks like, it says what the ordinary reader reads in it."""

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aliquot.kube.objects import UNREADABLE, Pod
from aliquot.scheduler_ext.kube_scheduler.node_names import OfferedNames
from aliquot.scheduler_ext.kube_scheduler.wire import WireError, read_ahead, read_filter
from tests.tools.examples import examples

NEEDLE = ',"NodeNames":["a"]}'
POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u-1"}}


class Call(msgspec.Struct):
    """What the ordinary reader makes of a body."""

    Pod: Pod
    NodeNames: tuple[str, ...] | None = None


def ordinary(body: bytes) -> tuple[Pod, list[str]] | None:
    """The pod and the names; None for a body that is refused."""
    try:
        call = msgspec.json.decode(body, type=Call)
    except UNREADABLE:
        return None
    usable = call.NodeNames is not None and call.Pod.metadata.uid
    return (call.Pod, list(call.NodeNames or ())) if usable else None


def as_read(body: bytes) -> tuple[Pod, list[str]] | None:
    """The same by the reader of calls."""
    try:
        args = read_filter(body)
    except WireError:
        return None
    count, there = len(args.NodeNames), [name in args.NodeNames for name in ("a", "b", "a b", 'a","b')]
    read = list(args.NodeNames)
    assert count == len(read)
    assert there == [name in read for name in ("a", "b", "a b", 'a","b')]
    return args.Pod, read


def written(call: dict[str, Any]) -> bytes:
    """As Go writes it."""
    return json.dumps(call, separators=(",", ":"), ensure_ascii=False).encode()


def offer(names: list[str]) -> OfferedNames:
    """Names as a call has them, unread."""
    found = read_filter(written({"Pod": POD, "Nodes": None, "NodeNames": names})).NodeNames
    assert isinstance(found, OfferedNames)
    return found


texts = st.one_of(
    st.text("ab,[]{}:. ", max_size=4),
    st.text(max_size=3),
    st.sampled_from((NEEDLE, 'x"', "a\\", "é", "\x7f")),
)
names = st.lists(texts, max_size=5)
values = st.one_of(st.none(), names, st.lists(st.one_of(texts, st.integers(), st.lists(texts, max_size=1))))
fields = st.fixed_dictionaries({}, optional={"NodeNames": values, "Nodes": values, "a": texts})
pods = st.builds(
    lambda more, notes: {**POD, **more, "metadata": {**POD["metadata"], **notes}}, fields, fields
)
calls = st.builds(
    lambda pod, nodes, names, more, order: dict(
        random.Random(order).sample(
            [("Pod", pod), ("Nodes", nodes), *([("NodeNames", names)] if names != 0 else ()), *more.items()],
            3 + len(more) - (names == 0),
        )
    ),
    pods,
    values,
    st.one_of(values, st.just(0)),
    st.dictionaries(st.sampled_from(("x", "NodeName")), fields, max_size=2),
    st.integers(0, 20),
)
styles = st.sampled_from(((",", ":"), (", ", ": "), (" ,", ":"), (",", ":\n")))


@given(calls, styles, st.booleans(), st.sampled_from(("", "\n", " \r\n\t", "\v", "}", "x")))
@examples(600)
def test_a_body_says_the_same_to_both_readers(
    call: dict[str, Any], style: tuple[str, str], plain: bool, end: str
):
    """Keys in any order, spaces, escapes, names that are none, names elsewhere, what is no body at all."""
    body = json.dumps(call, separators=style, ensure_ascii=plain).encode() + end.encode()
    assert as_read(body) == ordinary(body)


ODD = {
    "as Go writes it": (b'{"Pod":%s,"Nodes":null,"NodeNames":["a","b"]}', True),
    "no names": (b'{"Pod":%s,"Nodes":null,"NodeNames":[]}', True),
    "an empty name": (b'{"Pod":%s,"NodeNames":[""]}', True),
    "a comma for a name": (b'{"Pod":%s,"NodeNames":["a",",","b"]}', True),
    "null": (b'{"Pod":%s,"Nodes":null,"NodeNames":null}', False),
    "whole nodes": (b'{"Pod":%s,"Nodes":{"items":[]}}', False),
    "names said twice": (b'{"Pod":%s,"NodeNames":["x"],"NodeNames":["a"]}', True),
    "names said twice, once wrongly": (b'{"Pod":%s,"NodeNames":[1],"NodeNames":["a"]}', False),
    "names first": (b'{"NodeNames":["a"],"Pod":%s}', True),
    "names between": (b'{"x":1,"NodeNames":["a"],"Pod":%s}', True),
    "names of something else": (b'{"Pod":%s,"x":{"y":1,"NodeNames":["a"]}}', False),
    "names of something else at the end": (
        b'{"Pod":%s,"NodeNames":["b"],"x":{"y":1,"NodeNames":["a"]}}',
        True,
    ),
    "names in a text": (b'{"Pod":%s,"NodeNames":["b"],"x":"y,\\"NodeNames\\":[\\"a\\"]}"}', True),
    "an escape": (b'{"Pod":%s,"NodeNames":["\\u0061"]}', True),
    "escaped quotes": (b'{"Pod":%s,"NodeNames":["a\\",\\"b"]}', True),
    "an escaped key": (b'{"Pod":%s,"Node\\u004eames":["a"]}', True),
    "beyond ASCII": ('{"Pod":%s,"NodeNames":["é"]}'.encode(), True),
    "no UTF-8": (b'{"Pod":%s,"NodeNames":["\xff"]}', False),
    "a control character": (b'{"Pod":%s,"NodeNames":["a\nb"]}', False),
    "numbers": (b'{"Pod":%s,"NodeNames":["a",1,"b"]}', False),
    "lists": (b'{"Pod":%s,"NodeNames":["a",["b"]]}', False),
    "objects": (b'{"Pod":%s,"NodeNames":["a",{"b":"c"}]}', False),
    "a colon between": (b'{"Pod":%s,"NodeNames":["a":"b"]}', False),
    "nothing between": (b'{"Pod":%s,"NodeNames":["a""b"]}', False),
    "a comma too many": (b'{"Pod":%s,"NodeNames":["a",]}', False),
    "an open name": (b'{"Pod":%s,"NodeNames":["]}', False),
    "an open list": (b'{"Pod":%s,"NodeNames":["a"}', False),
    "an open call": (b'{"Pod":%s,"NodeNames":["a"]', False),
    "nothing but names": (b'{,"NodeNames":["a"]}', False),
    "no pod": (b'{"x":%s,"NodeNames":["a"]}', False),
    "two calls": (b'{"Pod":%s,"NodeNames":["a"]}{"NodeNames":["a"]}', False),
}


@pytest.mark.parametrize(("text", "good"), ODD.values(), ids=ODD)
def test_odd_bodies(text: bytes, good: bool):
    """One by one, so that it is known that each kind is read, or refused."""
    body = text.replace(b"%s", written(POD))
    assert as_read(body) == ordinary(body)
    assert (as_read(body) is not None) == good


def test_the_pod_of_a_call_is_known_as_soon_as_its_names_begin():
    """Whatever has come by then; more is waited for until then, and not of a call whose beginning makes no sense."""
    body = written({"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]})
    begin = body.index(b"NodeNames") + len(b'NodeNames":[')
    for end in range(len(body)):
        pod, more = read_ahead(body[:end])
        assert more == (end < begin)
        assert pod == (None if more else read_filter(body).Pod)
    ahead, _ = read_ahead(body[:begin])
    assert ahead is read_filter(body).Pod, "read twice"
    assert read_ahead(b'{"Pod":1,"NodeNames":["a"') == (None, False)
    assert read_ahead(b'{"Pod":%s,"NodeNames":["a"' % b'{"metadata":') == (None, False)


def test_whoever_sends_whole_nodes_is_told_what_to_set():
    """Nodes without names are what a scheduler sends that is not told otherwise."""
    with pytest.raises(WireError, match="nodeCacheCapable: true"):
        read_filter(
            written({"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "a"}}]}, "NodeNames": None})
        )


@given(names, st.integers(0, 10_000))
@examples(300)
def test_a_damaged_body_says_the_same_to_both_readers(some: list[str], seed: int):
    """Cut short, or with a byte more, less or another: what is refused is refused by both."""
    dice = random.Random(seed)
    body = bytearray(written({"Pod": POD, "Nodes": None, "NodeNames": [*some, "node-1", "node-2"]}))
    for _ in range(dice.randrange(3)):
        at = dice.randrange(len(body))
        body[at : at + dice.randrange(2)] = dice.choice(
            (b"", b'"', b",", b"]", b"}", b"\\", b"[", b"\x00", b"a")
        )
    del body[len(body) - dice.choice((0, 0, 1, 2, dice.randrange(len(body)))) :]
    assert as_read(bytes(body)) == ordinary(bytes(body))


plain_names = st.lists(st.text("abc,[]. ", max_size=3), max_size=6)


@given(plain_names, st.text('abc,[]. "\\é', max_size=3))
@example([], ",")
@example(["a", "b"], ",")
@example(["a", "b", ","], ",")
@example(["a", "b"], 'a","b')
@example(["abc", "", "", ""], "")
@example(["ab", "b"], "a")
@examples(300)
def test_a_node_is_offered_that_is_named(some: list[str], other: str):
    """No part of a name, and nothing between names, is taken for one."""
    for name in (*some, other):
        assert (name in offer(some)) == (name in some)


def test_names_are_not_made_of_a_text_to_count_them_or_to_find_one():
    """That is what it is for."""
    many = offer([f"node-{n}" for n in range(5000)])
    assert len(many) == 5000
    assert "node-4999" in many
    assert "node-5000" not in many
    assert many._names is None
    assert many[0] == "node-0"
    assert many[-2:] == ("node-4998", "node-4999")
    assert "node-17" in many
    assert list(many)[17] == "node-17"
