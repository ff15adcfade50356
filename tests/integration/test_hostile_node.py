"""A node whose agent means harm: it writes whatever it may into its own status, at random, beside an honest one.

SEED repeats a run, MINUTES lengthens it.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aliquot.sandbox.cluster.client import ApiError
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import MIB, Document, Extender, add_two_nodes, create, no_nodes, publish

LASTS_S = 60 * float(os.environ.get("MINUTES", "0.3"))
LONGEST_S = 5.0
"""A call: a hundred times what it takes on a quiet machine."""
HONEST, HOSTILE = "n1", "n2"
BOLD = 0.02
"""How often a field has what the schema does not allow."""
MOST = 2**31 - 1
NUMBERS = (0, 1, 7, 100, 2**20, MOST)
WORDS = ("", "x", "NODE", "SYS PIX PIX18", "PIX99999 " * 40, "?", "\u202e{}%s\n", "a" * 32)
UUIDS = ("n1-a", "n1-b", "n2-a", "n2-b")


def number(rng: random.Random, most: int = MOST) -> int:
    """One at the edge of something, or any."""
    if rng.random() < BOLD:
        return rng.choice((-2, 2**63, most + 1))
    return min(most, rng.choice((*NUMBERS, rng.randrange(2**20))))


def word(rng: random.Random, most: int) -> str:
    """One that a reader could stumble over."""
    made = rng.choice((*WORDS, "".join(rng.choices("SYSNODEPHBPXBPIXINT? 0189", k=rng.randrange(64)))))
    return made + "a" * most if rng.random() < BOLD else made[:most]


def instance(rng: random.Random) -> Document:
    """A part of a card by MIG."""
    uuid = rng.choice((*UUIDS, f"MIG-{rng.randrange(9)}"))
    return {"uuid": uuid, "profile": rng.choice(("1g.10gb", word(rng, 32))), "memoryMiB": number(rng)}


def card(rng: random.Random, uuid: str) -> Document:
    """A card, legal for the most part."""
    made: Document = {"uuid": uuid, "memoryMiB": rng.choice((16384, number(rng)))}
    made["reserveMiB"] = rng.choice((0, made["memoryMiB"], number(rng, made["memoryMiB"])))
    for name, most in (("index", MOST), ("cores", 100), ("numaNode", MOST)):
        if rng.random() < 0.4:
            made[name] = number(rng, most)
    for name, most in (("model", 128), ("busId", 32), ("pcieRoot", 32), ("links", 512), ("reason", 1024)):
        if rng.random() < 0.4:
            made[name] = word(rng, most)
    if rng.random() < 0.3:
        made["health"] = "Dead" if rng.random() < BOLD else rng.choice(("Healthy", "Unhealthy"))
    if rng.random() < 0.3:
        made["migEnabled"] = rng.random() > BOLD
        made["mig"] = [instance(rng) for _ in range(rng.randrange(17))]
    return made


def cards(rng: random.Random) -> list[Document]:
    """Up to more than a node may have; some are named as the honest node's."""
    names = [*UUIDS, *(f"g{n}" for n in range(62))]
    return [card(rng, uuid) for uuid in rng.sample(names, rng.choice((0, 1, 2, 4, 16, 64, 66)))]


def told(cluster: Any, rng: random.Random) -> bool:
    """Whether the API server took a status of the hostile node's."""
    try:
        publish(cluster, HOSTILE, cards(rng))
    except ApiError:
        return False
    return True


def honest_cards(extender: Extender) -> dict[str, int]:
    """What the extender may promise of the honest node's cards, in MiB."""
    families = text_string_to_metric_families(extender.get("/metrics").data.decode())
    samples = (one for family in families for one in family.samples)
    return {
        one.labels["card"]: int(one.value) // MIB
        for one in samples
        if one.name == "aliquot_scheduler_card_memory_usable_bytes" and one.labels["node"] == HONEST
    }


def placed(extender: Extender) -> float:
    """A pod comes, is placed on the honest node, and goes; the longest that a call took."""
    pod, longest = create(extender.cluster), 0.0
    for call in (
        lambda: bool(extender.filter(pod, HONEST, HOSTILE)["NodeNames"]),
        lambda: extender.filter(pod, HONEST)["NodeNames"] == [HONEST],
        lambda: not extender.bind(pod, HONEST),
        lambda: extender.get("/metrics").status == 200,
    ):
        begin = time.monotonic()
        assert call()
        longest = max(longest, time.monotonic() - begin)
    extender.cluster.kubectl.delete("pods", pod["metadata"]["name"], grace=0)
    wait_for("its place to be free", lambda: not extender.places())
    return longest


@pytest.fixture(name="extender")
def run_extender(tmp_path: Path) -> Iterator[Extender]:
    """One that knows two nodes."""
    with no_nodes(tmp_path) as cluster:
        add_two_nodes(cluster)
        extender = Extender(cluster)
        extender.start()
        yield extender
        extender.process.stop()


@pytest.mark.slow
@pytest.mark.timeout(3 * LASTS_S + 120)
def test_a_hostile_node_harms_nobody_but_itself(extender: Extender) -> None:
    """The honest one's cards are its own, calls are answered, and a node that has become honest has pods again."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    rng, took, longest, cluster = random.Random(seed), Counter[bool](), 0.0, extender.cluster
    end = time.monotonic() + LASTS_S
    while time.monotonic() < end:
        for _ in range(rng.randrange(1, 12)):
            took[told(cluster, rng)] += 1
        longest = max(longest, placed(extender))
        assert honest_cards(extender) == {"n1-a": 16384, "n1-b": 16384}
    print(f"{took[True]} statuses taken, {took[False]} refused; longest call {longest:.3f} s")
    assert longest < LONGEST_S
    assert "Traceback" not in extender.process.log.read_text()
    publish(cluster, HOSTILE, [{"uuid": "n2-a", "index": 0, "memoryMiB": 16384}])
    pod = create(cluster)
    wait_for(
        "the node to be taken again",
        lambda: HOSTILE in (extender.filter(pod, HOSTILE)["NodeNames"] or ()),
        deadline=180,
    )
