"""Which ids are suggested to the kubelet."""

import pytest

from aliquot.plugin.gate.preferred_allocation import choose

FREE = ["a::0", "a::1", "a::2", "b::0", "b::1", "c::0"]
CASES = {
    "one id comes from the emptiest card": (FREE, [], 1, (), ["a::0"]),
    "distinct cards as long as there are any": (FREE, [], 3, (), ["a::0", "b::0", "c::0"]),
    "then the emptiest again": (FREE, [], 4, (), ["a::0", "b::0", "c::0", "a::1"]),
    "wanted cards come first": (FREE, [], 2, ("c", "b"), ["b::0", "c::0"]),
    "what must be in is in, and its card counts as taken": (FREE, ["a::2"], 2, (), ["a::2", "b::0"]),
    "never more than there is": (["a::0"], [], 3, (), ["a::0"]),
    "nothing free": ([], [], 1, (), []),
}


@pytest.mark.parametrize("case", CASES)
def test_ids_are_chosen(case: str):
    """See the case's name."""
    available, must, size, wanted, chosen = CASES[case]
    assert choose(available, must, size, wanted) == chosen
