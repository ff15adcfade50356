"""All attempts, and for each policy one that shows whether it holds."""

from tests.cluster.policies.attempts import Attempt
from tests.cluster.policies.fenced_pods import OUTSIDE_THE_FENCE
from tests.cluster.policies.forgeries import FORGERIES
from tests.cluster.policies.stolen_tokens import OF_OTHER_NODES

ATTEMPTS: list[Attempt] = [*FORGERIES, *OUTSIDE_THE_FENCE, *OF_OTHER_NODES]
CANARIES = {attempt.policy: attempt for attempt in reversed(ATTEMPTS)}
