"""How a container's part of a card's time is held: its pod's word, its pool's, and what a resize leaves of them."""

import msgspec
import pytest

from aliquot.crds.gpu_pool import NO_POOL, PoolSpec
from aliquot.kube.objects import Pod
from aliquot.request.core_policy import NO_POLICY, CoreMode, CorePolicy, CoreTerms
from aliquot.request.pod_request import read_pod_request

CAPPED, BURST, UNCAPPED = CoreMode.CAPPED, CoreMode.BURST, CoreMode.UNCAPPED
BURSTING = PoolSpec(core_mode=BURST, core_limit=70, priority=3, max_priority=5)


@pytest.mark.parametrize(
    ("pool", "asked", "cores", "terms"),
    [
        pytest.param(NO_POOL, NO_POLICY, 30, CoreTerms(CAPPED, 30, 0), id="a share is a cap by itself"),
        pytest.param(NO_POOL, NO_POLICY, 0, CoreTerms(UNCAPPED, 100, 0), id="no share is no cap"),
        pytest.param(
            NO_POOL, CorePolicy(BURST), 30, CoreTerms(BURST, 100, 0), id="burst has no bound by itself"
        ),
        pytest.param(NO_POOL, CorePolicy(None, 60), 30, CoreTerms(BURST, 60, 0), id="a bound means burst"),
        pytest.param(BURSTING, NO_POLICY, 30, CoreTerms(BURST, 70, 3), id="a pool speaks for the silent"),
        pytest.param(BURSTING, CorePolicy(CAPPED), 30, CoreTerms(CAPPED, 30, 3), id="a pod may be stricter"),
        pytest.param(
            BURSTING, CorePolicy(BURST, 90), 30, CoreTerms(BURST, 70, 3), id="a pool's bound is the last"
        ),
        pytest.param(
            BURSTING, CorePolicy(BURST, 50), 30, CoreTerms(BURST, 50, 3), id="a lower bound is kept"
        ),
        pytest.param(BURSTING, NO_POLICY, 80, CoreTerms(BURST, 80, 3), id="no bound takes from a share"),
        pytest.param(BURSTING, NO_POLICY, 0, CoreTerms(UNCAPPED, 100, 3), id="a pool gives nobody a share"),
        pytest.param(
            BURSTING, CorePolicy(priority=9), 30, CoreTerms(BURST, 70, 5), id="a pool bounds priority"
        ),
        pytest.param(
            BURSTING, CorePolicy(priority=0), 30, CoreTerms(BURST, 70, 0), id="0 is a word, not silence"
        ),
        pytest.param(
            NO_POOL, CorePolicy(BURST, 60), 0, CoreTerms(UNCAPPED, 100, 0), id="a resize took the share"
        ),
        pytest.param(NO_POOL, CorePolicy(UNCAPPED), 30, CoreTerms(CAPPED, 30, 0), id="a resize gave one"),
        pytest.param(
            NO_POOL, CorePolicy(BURST, 60), 80, CoreTerms(BURST, 80, 0), id="a resize went past the bound"
        ),
    ],
)
def test_terms_of_pod_and_pool(pool: PoolSpec, asked: CorePolicy, cores: int, terms: CoreTerms) -> None:
    """The pod's word counts within the pool's bounds; what the placement says now decides on capped or not."""
    assert pool.core_terms_for(asked, cores) == terms


def test_a_containers_own_annotation_wins() -> None:
    """Each is read for itself: one may burst beside one that is capped."""
    annotations = {
        "aliquot.dev/core-mode": "burst",
        "strict.aliquot.dev/core-mode": "capped",
        "wide.aliquot.dev/core-limit": "60",
        "aliquot.dev/priority": "4",
    }
    containers = [
        {"name": name, "resources": {"limits": {"aliquot.dev/gpu-core": 20}}} for name in ("strict", "wide")
    ]
    pod = msgspec.convert({"metadata": {"annotations": annotations}, "spec": {"containers": containers}}, Pod)
    asked = {one.name: one.slice.policy for one in read_pod_request(pod).containers if one.slice}
    assert asked == {"strict": CorePolicy(CAPPED, None, 4), "wide": CorePolicy(BURST, 60, 4)}
