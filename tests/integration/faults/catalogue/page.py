"""The table of faults as a page: `python -m tests.integration.faults.catalogue.page` writes `docs/faults.md`."""

from collections.abc import Iterator

from tests.integration.faults.catalogue import GROUPS
from tests.integration.faults.catalogue.away import AWAY
from tests.integration.faults.catalogue.chaos import CHAOS
from tests.integration.faults.catalogue.fault import REPOSITORY, Fault

PAGE = REPOSITORY / "docs" / "faults.md"
OPENING = """\
# Faults

What is broken on purpose, what holds all the same, and the tests that show it. Tests below `tests/integration` run
on the [pocket cluster](pocket-cluster.md) or a single node of it, those below `tests/cluster` on
[real Kubernetes components](test-cluster.md).

After each step an auditor looks at what the API server, the kubelet, the CDI files, the containers and the simulated
cards say, and never at a ledger of Aliquot's own (`tests/integration/journey/auditor.py`,
`tests/cluster/auditor.py`). Whatever is broken:

- no card has more memory or compute time promised than it has;
- a card held alone has one tenant, and a card is either shared or partitioned by MIG;
- what a container is held to is what its pod was granted, and that is what it asked for;
- 60 s after a pod is gone nothing of it is left;
- no running container ends or starts again;
- no namespace has more than its quota.

This page is made of `tests/integration/faults/catalogue` (`python -m tests.integration.faults.catalogue.page`).
"""


def page() -> str:
    """The whole page."""
    return "\n".join([OPENING, *(line for group in GROUPS.items() for line in _table(*group)), CHAOS, AWAY])


def _table(title: str, faults: tuple[Fault, ...]) -> Iterator[str]:
    if not faults:
        return
    yield from (f"## {title}", "", "| | what is broken | what holds | shown by |", "|---|---|---|---|")
    for fault in faults:
        tests = "<br>".join(f"`{name.removeprefix('tests/')}`" for name in fault.proven)
        yield f"| {fault.id} | {fault.injected} | {fault.holds} | {tests} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
