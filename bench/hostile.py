"""How long calls take while a thousand make no sense and two hundred connections are slow, and without them.

For the extender (filter, from who may), the webhook (an admission) and the agent (a scrape): the 99th percentile of
calls one after the other on one connection, for 15 s each, with the attackers on the same machine.
"""

import json
import tempfile
from pathlib import Path

from tests.integration.hostiles import Hostiles, besieged, timed
from tests.integration.targets import TARGETS

SEED, QUIET_S, SIEGE_S = 1, 5.0, 20.0


def tell(target: str, when: str, seconds: list[float]) -> None:
    """One line; less is better."""
    value = round(seconds[int(len(seconds) * 0.99)] * 1000, 2)
    name = f"hostile.{target.replace(' ', '_')}.{when}_p99_ms"
    print(json.dumps({"name": name, "value": value, "unit": "ms", "better": "lower"}), flush=True)


def main() -> None:
    """Print two figures a server."""
    for target, opened in TARGETS.items():
        with (
            tempfile.TemporaryDirectory(prefix="aq-") as directory,
            opened(Path(directory)) as (port, tls, path, good),
        ):
            good()
            tell(target, "quiet", timed(good, QUIET_S))
            tell(target, "besieged", besieged(Hostiles(port, tls, path, SEED, patience_s=SIEGE_S), good))


if __name__ == "__main__":
    main()
