"""Acts drawn from a seed, one after the other, and an auditor that looks after each."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.chaos.auditor import Auditor
from tests.integration.chaos.place import Place

SETTLES_S = 120.0


@dataclass(frozen=True)
class Act:
    """Something that happens: its name, how often by comparison, and what does it and says what it did."""

    name: str
    weight: int
    do: "Callable[[Chaos], str]"


@dataclass
class Chaos:
    """What happens.

    Attributes:
        guests: names of the pods that were made and not deleted.
        made: how many pods there were so far.
        repairs: what mends what is broken now and stays so for a while, by what it is.
        done: how often each act was done.
    """

    place: Place
    dice: random.Random
    acts: Sequence[Act]
    guests: list[str] = field(default_factory=list)
    made: int = 0
    repairs: "dict[str, Callable[[], None]]" = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.auditor = Auditor(self.place)
        self._first = self.dice.sample(self.acts, len(self.acts))

    @property
    def complete(self) -> bool:
        """Whether every act was done."""
        return not self._first

    def step(self) -> str:
        """One act and the audit: every act once in any order, and from then on by weight. Says what was done."""
        act = self._first.pop() if self._first else self._drawn()
        self.done[act.name] += 1
        said = f"{act.name}: {act.do(self)}"
        self.auditor.audit()
        return said

    def _drawn(self) -> Act:
        return self.dice.choices(self.acts, [act.weight for act in self.acts])[0]

    def settle(self) -> None:
        """Mend all, and return once every pod runs or waits with a reason. Raises TimeoutError."""
        for repair in self.repairs.values():
            repair()
        self.repairs.clear()
        try:
            wait_for("all pods to settle", lambda: not self.unsettled(), SETTLES_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.unsettled()}") from error
        self.auditor.audit()

    def unsettled(self) -> list[str]:
        """The guests of which it is not clear what becomes of them."""
        return [name for name in self.guests if not self._is_settled(name)]

    def _is_settled(self, name: str) -> bool:
        """Whether it runs, was given up by the kubelet, or waits with a reason."""
        status = self.place.kubectl.get("pods", name)["status"]
        if status.get("phase") == "Pending":
            waits = [c for c in status.get("conditions", ()) if c["type"] == "PodScheduled"]
            return (
                bool(waits) and waits[0]["status"] == "False" and "nodes are available" in waits[0]["message"]
            )
        return status.get("phase") in ("Running", "Failed")
