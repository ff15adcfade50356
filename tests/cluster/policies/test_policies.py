"""What the chart's admission policies refuse, to whom, and in what words; and that each of them alone does it."""

import pytest

from aliquot.sandbox.cluster.client import ApiError
from tests.cluster.policies.attempts import Attempt
from tests.cluster.policies.catalogue import ATTEMPTS, CANARIES
from tests.cluster.policies.world import World

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=str)
def test_it_is_refused_in_words(world: World, attempt: Attempt):
    """403, the policy's name, and a sentence that names the thing; nothing is written."""
    if attempt.dialect and not world.dialects:
        pytest.skip("NOT RUN: on a cluster that is lent others ask for cards in the dialect's words")
    before = world.state()
    with pytest.raises(ApiError) as caught:
        world.try_it(attempt)
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden"), str(caught.value)
    message = str(caught.value)
    assert (
        f"ValidatingAdmissionPolicy '{attempt.policy}' with binding '{attempt.policy}' denied request: "
        in message
    )
    assert attempt.says in message
    assert world.state() == before


@pytest.mark.parametrize("policy", CANARIES)
def test_without_the_policy_it_is_done(world: World, policy: str):
    """Nothing else is in the way of what a policy refuses, so the test above can fail."""
    with world.without(policy):
        attempts = [one for one in ATTEMPTS if one.policy == policy and (world.dialects or not one.dialect)]
        refusals = {str(one): str(world.refusal(one, dry_run=True)) for one in attempts}
    assert {what: why for what, why in refusals.items() if why != "None"} == {}
