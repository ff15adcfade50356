"""How long to wait before trying again."""

import random
from dataclasses import dataclass, field


@dataclass
class Backoff:
    """Waiting times in seconds that double from `first` to `most`, each shortened at random by up to half.

    The jitter keeps a fleet of agents from returning to a restarted API server in step.
    """

    first: float = 0.2
    most: float = 30.0
    _failures: int = field(default=0, init=False)

    def next(self) -> float:
        """Return the time to wait after one more failure."""
        whole = min(self.most, self.first * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return whole * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret

    def reset(self) -> None:
        """Start over: it worked."""
        self._failures = 0
