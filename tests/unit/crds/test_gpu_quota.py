"""Quotas as they are written: which one is a namespace's, and what a ResourceQuota says of cards."""

import logging

import msgspec
import pytest

from aliquot.api.names import DEFAULT_NAMES
from aliquot.crds.gpu_quota import GPUQuota, Most, QuotaSpec, ResourceQuota, hard_limits, quota_of
from aliquot.dialects import load_dialects
from aliquot.kube.objects import ObjectMeta


def native(hard: dict[str, str], **more: object) -> ResourceQuota:
    """A ResourceQuota as the API server sends it."""
    meta = {"name": "cards", "namespace": "team"}
    return msgspec.convert({"metadata": meta, "spec": {"hard": hard, **more}}, ResourceQuota)


HARD: dict[str, tuple[dict[str, str], Most]] = {
    "our names": (
        {
            "limits.aliquot.dev/gpu": "4",
            "limits.aliquot.dev/gpu-mem": "64Gi",
            "limits.aliquot.dev/gpu-core": "200",
        },
        Most(memory_mib=65536, cores=200, cards=4),
    ),
    "HAMi's names": (
        {
            "limits.nvidia.com/gpu": "4",
            "limits.nvidia.com/gpumem": "20000",
            "limits.nvidia.com/gpucores": "1k",
        },
        Most(memory_mib=20000, cores=1000, cards=4),
    ),
    "both, of which the least counts": (
        {"limits.aliquot.dev/gpu-mem": "1Gi", "limits.nvidia.com/gpumem": "2000"},
        Most(memory_mib=1024),
    ),
    "what Kubernetes enforces by itself": ({"requests.nvidia.com/gpu": "4", "limits.memory": "1Gi"}, Most()),
    "a percentage, which is one of different cards": ({"limits.aliquot.dev/gpu-mem-percent": "50"}, Most()),
    "less than a MiB": ({"limits.aliquot.dev/gpu-mem": "1Ki"}, Most(memory_mib=0)),
}


@pytest.mark.parametrize(("hard", "limit"), HARD.values(), ids=HARD.keys())
def test_a_resource_quota_bounds_cards(hard: dict[str, str], limit: Most) -> None:
    """By `limits.<resource>`, as HAMi has it."""
    assert hard_limits(native(hard), DEFAULT_NAMES, load_dialects(["hami"])) == limit


def test_a_dialect_that_is_off_bounds_nothing() -> None:
    """Its resources mean nothing then."""
    assert hard_limits(native({"limits.nvidia.com/gpumem": "1"}), DEFAULT_NAMES, ()) == Most()


@pytest.mark.parametrize(
    "scoped",
    [
        {"scopes": ["BestEffort"]},
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}},
    ],
)
def test_a_quota_of_some_pods_is_left_out_aloud(
    scoped: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Which pods a scope means is not told apart, and the admin learns that."""
    with caplog.at_level(logging.WARNING):
        assert hard_limits(native({"limits.aliquot.dev/gpu": "4"}, **scoped), DEFAULT_NAMES, ()) == Most()
    assert "team/cards has scopes" in caplog.text


def test_a_namespace_belongs_to_the_first_quota_that_lists_it() -> None:
    """By name, among those of the same pool."""

    def made(name: str, pool: str, *namespaces: str) -> GPUQuota:
        return GPUQuota(metadata=ObjectMeta(name=name), spec=QuotaSpec(namespaces=namespaces, pool=pool))

    quotas = [made("c", "", "x"), made("b", "", "x", "y"), made("a", "pool", "x")]
    assert quota_of(quotas, "x") == quotas[1]
    assert quota_of(quotas, "x", "pool") == quotas[2]
    assert quota_of(quotas, "z") is None
