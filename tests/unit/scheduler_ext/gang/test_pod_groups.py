"""Which group a pod belongs to, and what is said of it, by every convention."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot.api.pod_groups import NATIVE, PLUGINS, VOLCANO
from aliquot.scheduler_ext.gang.pod_groups import UNSAID, PodGroup, Terms, terms_of
from aliquot.scheduler_ext.state.pods import PlacedPod

SAYS: dict[str, tuple[dict[str, Any], str | None]] = {
    "Kubernetes": ({"spec": {"schedulingGroup": {"podGroupName": "train"}}}, NATIVE),
    "scheduler-plugins": ({"labels": {"scheduling.x-k8s.io/pod-group": "train"}}, PLUGINS),
    "its older label": ({"labels": {"pod-group.scheduling.sigs.k8s.io": "train"}}, PLUGINS),
    "its oldest": ({"labels": {"pod-group.scheduling.sigs.k8s.io/name": "train"}}, PLUGINS),
    "Volcano": ({"annotations": {"scheduling.k8s.io/group-name": "train"}}, VOLCANO),
    "Volcano's newer": ({"annotations": {"scheduling.volcano.sh/group-name": "train"}}, VOLCANO),
    "nothing": ({"labels": {"app": "x"}, "annotations": {"a": "b"}}, None),
    "an empty name": ({"labels": {"scheduling.x-k8s.io/pod-group": ""}}, None),
}


def pod(spec: dict[str, Any] | None = None, node: str = "", **meta: Any) -> PlacedPod:
    """A pod as the watch shows it."""
    container = {"name": "main", "resources": {"limits": {"aliquot.dev/gpu-mem": "4Gi"}}}
    body = {
        "metadata": {"name": "p", "namespace": "team", "uid": "u", **meta},
        "spec": {"containers": [container], "nodeName": node, **(spec or {})},
    }
    return msgspec.convert(body, PlacedPod)


@pytest.mark.parametrize(("says", "api"), SAYS.values(), ids=SAYS.keys())
def test_pods_name_their_group(says: dict[str, Any], api: str | None):
    """By label, annotation or field."""
    key = pod(**says).group
    found = (str(key), key.api) if key else None
    assert found == (("team/train", api) if api else None)


def test_only_members_that_wait_keep_what_they_ask_for():
    """All other pods of a large cluster are kept small."""
    mark = SAYS["scheduler-plugins"][0]
    kept = [bool(one.spec.containers) for one in (pod(**mark), pod(**mark, node="n1"), pod())]
    assert kept == [True, False, False]


OBJECTS: dict[str, tuple[dict[str, Any], Terms]] = {
    "minMember": ({"minMember": 4, "scheduleTimeoutSeconds": 30}, Terms(4, 30.0)),
    "a gang of Kubernetes": ({"schedulingPolicy": {"gang": {"minCount": 3}}}, Terms(3, None)),
    "a basic policy": ({"schedulingPolicy": {"basic": {}}}, Terms(0, None)),
    "nothing": ({}, Terms(0, None)),
    "no time at all": ({"minMember": 2, "scheduleTimeoutSeconds": 0}, Terms(2, None)),
}


@pytest.mark.parametrize(("spec", "terms"), OBJECTS.values(), ids=OBJECTS.keys())
def test_objects_say_how_many_and_how_long(spec: dict[str, Any], terms: Terms):
    """Pods of a PodGroup that is no gang go alone."""
    assert msgspec.convert({"spec": spec}, PodGroup).terms == terms


PODS: dict[str, tuple[dict[str, Any], Terms]] = {
    "both": (
        {"annotations": {"aliquot.dev/group-min-members": "4", "aliquot.dev/group-timeout-seconds": "90"}},
        Terms(4, 90.0),
    ),
    "the old label": ({"labels": {"pod-group.scheduling.sigs.k8s.io/min-available": "2"}}, Terms(2, None)),
    "more than a day": ({"annotations": {"aliquot.dev/group-timeout-seconds": "1" * 30}}, UNSAID),
    "no number": ({"annotations": {"aliquot.dev/group-min-members": "all"}}, UNSAID),
    "less than one": ({"annotations": {"aliquot.dev/group-min-members": "-1"}}, UNSAID),
    "no text": ({"annotations": {"aliquot.dev/group-min-members": ""}}, UNSAID),
}


@pytest.mark.parametrize(("meta", "terms"), PODS.values(), ids=PODS.keys())
def test_pods_say_it_where_there_is_no_object(meta: dict[str, Any], terms: Terms):
    """What cannot be read says nothing."""
    assert terms_of(pod(**meta).metadata) == terms


def test_a_long_time_is_a_day_at_most():
    """An hour in milliseconds is not forty days."""
    said = {"aliquot.dev/group-timeout-seconds": "3600000"}
    assert terms_of(pod(annotations=said).metadata).seconds == 24 * 3600
