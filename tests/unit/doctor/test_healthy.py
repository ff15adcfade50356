"""What holds for all checks of a cluster."""

from dataclasses import fields, replace

import pytest

from aliquot.doctor.all_checks import CLUSTER_CHECKS
from aliquot.doctor.facts.cluster import Cluster
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.finding import Result
from tests.unit.doctor.clusters import found, healthy

NEEDED = [field.name for field in fields(Cluster) if field.name not in ("namespace", "now", "unreachable")]


def test_nothing_is_wrong_with_a_healthy_cluster():
    """Each check says so, in words."""
    findings = found(healthy())
    assert [one for one in findings if one.result is not Result.OK] == []
    assert {one.check for one in findings} == {check.name for check in CLUSTER_CHECKS}


def test_what_was_not_read_is_never_ok():
    """Not one check passes on nothing."""
    findings = found(Cluster())
    assert {one.check for one in findings} == {check.name for check in CLUSTER_CHECKS}
    assert {one.result for one in findings} == {Result.NOT_CHECKED}


@pytest.mark.parametrize("name", NEEDED)
def test_a_right_that_is_missing_is_named(name: str):
    """Each fact that you may not read makes some check say which right you lack."""
    known = getattr(healthy(), name)
    unknown = Fact[object].unknown("you lack the right to list things")
    value = dict.fromkeys(known, unknown) if isinstance(known, dict) else unknown
    findings = found(replace(healthy(), **{name: value}))
    assert any(
        one.result is Result.NOT_CHECKED and one.seen == "you lack the right to list things"
        for one in findings
    )
    assert not [one for one in findings if one.result in (Result.FAILURE, Result.WARNING)]


def test_an_api_server_that_does_not_answer_is_a_failure():
    """And all that hangs on it was not checked."""
    findings = found(Cluster(unreachable="no answer from https://192.0.2.1: timed out"))
    assert [one.check for one in findings if one.result is Result.FAILURE] == ["kubernetes"]
    assert all(one.result is Result.NOT_CHECKED for one in findings if one.check != "kubernetes")
