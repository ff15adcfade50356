"""HAMi's resources mean here what they mean there."""

from typing import Any

import msgspec
import pytest

from aliquot.dialects import load_dialects
from aliquot.kube.objects import Pod
from aliquot.names import ResourceNames
from aliquot.request import RequestError, SliceRequest, read_pod_request

N = "nvidia.com/"
WHOLE = SliceRequest(1, None, 100, 100, exclusive=True)


def read(limits: dict[str, Any], requests: dict[str, Any] | None = None) -> SliceRequest | None:
    """Read the slice of a one-container pod with HAMi's dialect on."""
    resources = {"limits": limits, "requests": requests or {}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    asked = read_pod_request(msgspec.convert({"spec": spec}, Pod), dialects=load_dialects(["hami"]))
    return asked.containers[0].slice if asked.containers else None


HAMI: dict[str, tuple[dict[str, Any], SliceRequest | None]] = {
    "a count alone takes the card alone": ({N + "gpu": 1}, WHOLE),
    "two whole cards": ({N + "gpu": "2"}, SliceRequest(2, None, 100, 100, exclusive=True)),
    "memory is MiB on each card": ({N + "gpu": 2, N + "gpumem": 3000}, SliceRequest(2, 3000, None, 0)),
    "the count is 1 where it is missing": ({N + "gpumem": "3000"}, SliceRequest(1, 3000, None, 0)),
    "cores 0 is unlimited": ({N + "gpumem": 3000, N + "gpucores": 0}, SliceRequest(1, 3000, None, 0)),
    "cores cap each card": ({N + "gpumem": 3000, N + "gpucores": 30}, SliceRequest(1, 3000, None, 30)),
    "cores without memory come with all of it": ({N + "gpucores": 30}, SliceRequest(1, None, 100, 30)),
    "100 cores take the card alone": ({N + "gpucores": 100}, WHOLE),
    "100 cores take the card alone, whatever the memory":
        ({N + "gpumem": 3000, N + "gpucores": 100}, SliceRequest(1, 3000, None, 100, exclusive=True)),
    "more cores than there are count as all": ({N + "gpucores": 250}, WHOLE),
    "a percentage of memory": ({N + "gpumem-percentage": 50}, SliceRequest(1, None, 50, 0)),
    "MiB win over the percentage":
        ({N + "gpumem": 3000, N + "gpumem-percentage": 50}, SliceRequest(1, 3000, None, 0)),
    "0 MiB are as good as none given":
        ({N + "gpu": 1, N + "gpumem": 0, N + "gpucores": 20}, SliceRequest(1, None, 100, 20)),
    "a count of 0 asks for nothing": ({N + "gpu": 0, N + "gpumem": 3000}, None),
    "priority alone asks for nothing": ({N + "priority": 1}, None),
    "nothing of HAMi's": ({"cpu": 1}, None),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "wanted"), HAMI.values(), ids=HAMI)
def test_hami_resources_are_translated(limits: dict[str, Any], wanted: SliceRequest | None):
    """Each combination means the slice that HAMi would give."""
    assert read(limits) == wanted


def test_hami_requests_stand_in_for_limits():
    """As in HAMi, a request counts where there is no limit."""
    assert read({}, {N + "gpumem": 100}) == SliceRequest(1, 100, None, 0)


@pytest.mark.parametrize(
    ("limits", "resource"),
    [
        ({N + "gpumem": "x"}, N + "gpumem"),
        ({N + "gpumem": "-5"}, N + "gpumem"),
        ({N + "gpumem-percentage": 101}, N + "gpumem-percentage"),
        ({N + "gpumem-percentage": 0}, N + "gpumem-percentage"),
        ({N + "gpu": "0.5"}, N + "gpu"),
    ],
)
def test_what_hami_would_zero_is_refused(limits: dict[str, Any], resource: str):
    """Nonsense in a dialect is refused by its own resource's name."""
    with pytest.raises(RequestError) as refused:
        read(limits)
    assert refused.value.resource == resource


@pytest.mark.parametrize("limits", [limits for limits, wanted in HAMI.values() if wanted], ids=str)
def test_reading_what_the_webhook_wrote_changes_nothing(limits: dict[str, Any]):
    """With ours added beside theirs the pod asks for the same, so it can be applied again."""
    first = read(limits)
    assert first is not None
    assert read({**limits, **first.limits(ResourceNames())}) == first


def test_two_names_for_different_things_are_refused():
    """A container that asks for one thing in our names and another in HAMi's gets neither."""
    with pytest.raises(RequestError, match="keep one of the two"):
        read({N + "gpumem": 3000, "aliquot.dev/gpu-mem": "4Gi"})


def test_without_the_dialect_their_names_mean_nothing():
    """A dialect that is off is as if it did not exist."""
    spec = {"containers": [{"name": "c", "resources": {"limits": {N + "gpu": 1}}}]}
    assert not read_pod_request(msgspec.convert({"spec": spec}, Pod)).containers


def test_an_unknown_dialect_is_refused_with_the_known_ones():
    """A misspelt flag stops the service at once."""
    with pytest.raises(ValueError, match="no dialect 'hammy'; there are: hami"):
        load_dialects(["hammy"])
