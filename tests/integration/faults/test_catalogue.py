"""The table of faults does not lie."""

import pytest

from tests.integration.faults.catalogue import GROUPS
from tests.integration.faults.catalogue.fault import Fault, exists
from tests.integration.faults.catalogue.page import PAGE, page

FAULTS = [fault for group in GROUPS.values() for fault in group]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_each_fault_names_tests_that_exist(fault: Fault) -> None:
    """Who renames or removes a test changes the table."""
    assert fault.proven
    assert [name for name in fault.proven if not exists(name)] == []


def test_a_test_that_is_not_there_is_noticed() -> None:
    """Neither a file that is missing nor a function that is."""
    here = "tests/integration/faults/test_catalogue.py"
    assert exists(f"{here}::{test_a_test_that_is_not_there_is_noticed.__name__}")
    assert not exists(f"{here}::test_of_nothing")
    assert not exists("tests/integration/faults/test_nothing.py::test_of_nothing")


def test_no_fault_is_there_twice() -> None:
    """An id means one thing, and each table is in order."""
    for group in GROUPS.values():
        assert [fault.id for fault in group] == sorted(fault.id for fault in group)
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)


def test_the_page_says_what_the_table_says() -> None:
    """`docs/faults.md` is made of it."""
    assert PAGE.read_text() == page(), "write it anew: python -m tests.integration.faults.catalogue.page"
