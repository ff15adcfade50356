"""How many pods a second a real kube-scheduler and the extender bind on many nodes, and that no card is promised twice.

    python bench/cluster_scale.py [--nodes 500] [--pods 2000] [--rate 100] [--seed 1]

Prints one JSON object a line, and ends with an error where one was: `tests/cluster/fleet.py` counts, from the
API server alone. Nodes are objects without kubelets, of two cards of 16 GiB each. It needs Go or a control plane's
binaries (docs/test-cluster.md), and no root.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.cluster.fleet import Fleet


def main() -> None:
    """Measures once."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with Fleet(given.nodes, seed=given.seed) as fleet:
        figures = fleet.flood(given.pods, given.rate)
        bound = sum(fleet.audit().values())
    about = {"nodes": given.nodes, "pods": given.pods, "seed": given.seed, "asked_per_second": given.rate}
    for what, value in (
        ("created_per_second", figures.created_per_second),
        ("bound_per_second", figures.bound_per_second),
        ("wait_p50_s", figures.wait(50)),
        ("wait_p99_s", figures.wait(99)),
        ("bound_and_audited", bound),
    ):
        print(json.dumps({"what": f"cluster.scale.{what}", "value": round(value, 3), **about}))


if __name__ == "__main__":
    main()
