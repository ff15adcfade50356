"""The JSON Patch builder, held against the reference implementation."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.webhook.patch import Patch, pointer


def test_keys_are_escaped():
    """Slashes and tildes within a key do not divide it."""
    assert pointer(("metadata", "annotations", "a.dev/b~c", 0)) == "/metadata/annotations/a.dev~1b~0c/0"


def test_missing_parents_are_made_in_one_operation():
    """A value deep below a missing object brings that object along."""
    patch = Patch({"spec": {}})
    patch.set(("spec", "resources", "limits", "a.dev/gpu"), "1")
    assert patch.operations == [
        {"op": "add", "path": "/spec/resources", "value": {"limits": {"a.dev/gpu": "1"}}}
    ]


def test_an_explicit_null_counts_as_missing():
    """The API server writes null for some empty fields."""
    patch = Patch({"env": None})
    patch.append(("env",), {"name": "A"})
    assert jsonpatch.apply_patch({"env": None}, patch.operations) == {"env": [{"name": "A"}]}


def test_setting_what_is_there_changes_nothing():
    """An edit without effect leaves no operation."""
    patch = Patch({"a": {"b": 1}})
    patch.set(("a", "b"), 1)
    patch.remove(("a", "c"))
    patch.remove(("z", "c"))
    assert patch.operations == []


KEYS = st.sampled_from(["a", "b/c", "d~e", ""])
EDITS = st.tuples(st.sampled_from(["set", "append", "remove"]), st.lists(KEYS, min_size=1, max_size=4))


@given(st.lists(EDITS, max_size=8))
def test_the_operations_lead_to_the_document(edits: list[tuple[str, list[str]]]):
    """Applying the operations with the reference implementation gives the builder's own document."""
    original: dict[str, Any] = {"a": {"b/c": {"d~e": "old"}}}
    patch = Patch(copy.deepcopy(original))
    for n, (kind, path) in enumerate(edits):
        try:
            if kind == "set":
                patch.set(tuple(path), n)
            elif kind == "append":
                patch.append(tuple(path), n)
            else:
                patch.remove(tuple(path))
        except (TypeError, AttributeError):
            continue  # the path leads through a value that is no object
    assert jsonpatch.apply_patch(original, patch.operations) == patch.document


@pytest.mark.parametrize("operation", ["add", "replace"])
def test_a_value_is_added_or_replaced(operation: str):
    """RFC 6902 tells a new key from a changed one."""
    patch = Patch({"a": "old"} if operation == "replace" else {})
    patch.set(("a",), "new")
    assert patch.operations == [{"op": operation, "path": "/a", "value": "new"}]
