"""How many random examples a property is tried on.

`make test` tries a third of them, which takes seconds. `make -C tests properties`, a part of `make test-full`, sets
EXAMPLES=all and tries all of them.
"""

import os

from hypothesis import settings

SHARE = 1 if os.environ.get("EXAMPLES") == "all" else 3


def examples(number: int, **others: object) -> settings:
    """Hypothesis' settings for a property that is tried on so many examples in full; `others` are further settings."""
    return settings(max_examples=-(-number // SHARE), deadline=None, **others)  # type: ignore[arg-type]
