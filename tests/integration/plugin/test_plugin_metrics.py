"""What Prometheus is told."""

import os
import subprocess
import time
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from aliquot.request.placement import CardShare
from aliquot.sandbox.cluster.processes import free_port
from tests.integration.plugin.small_kubelet import until
from tests.integration.plugin.test_plugin_watchdog import say
from tests.integration.plugin.world import GPU, MakeWorld, World, container, occupy, slice_of

GIB = 1 << 30


def fetch(url: str) -> str:
    """The body of an answer; empty while nobody answers or the answer is no success."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
            return str(answer.read().decode())
    except (OSError, urllib.error.URLError):
        return ""


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Each sample by name and the label values that tell it apart."""
    return {
        (
            sample.name,
            *(sample.labels.get(label, "") for label in ("card", "pod", "container", "call", "outcome")),
        ): (sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def start_and_serve(world: World) -> str:
    """Start the node agent with metrics on a free port; returns where they are."""
    port = free_port()
    world.start_plugin("--metrics-port", str(port), "--metrics-host", "127.0.0.1")
    base = f"http://127.0.0.1:{port}"
    until(lambda: fetch(f"{base}/readyz") == "ok\n", "ready")
    return f"{base}/metrics"


def test_slices_cards_and_calls_are_measured(make_world: MakeWorld):
    """A slice's limit and use, a card's promise, and how long the kubelet's calls took."""
    world = make_world(start=False)
    url = start_and_serve(world)
    share = CardShare(world.uuids[1], 8 * 1024, 30)
    pod = world.pod("infer", [container("main", slice_of("8Gi", 30))], {"main": [share]})
    held = world.kubelet.allocate(pod, "main", GPU, 1)
    world.kubelet.pre_start(held)
    process = subprocess.Popen(["/bin/sleep", "60"])
    occupy(world.usage(held.nonce), process, 3 * GIB)
    found = samples(fetch(url))
    process.kill()
    process.wait()
    mine, card = (world.uuids[1], "infer", "main", "", ""), (world.uuids[1], "", "", "", "")
    assert found["aliquot_slice_memory_limit_bytes", *mine] == 8 * GIB
    assert found["aliquot_slice_memory_used_bytes", *mine] == 3 * GIB
    assert found["aliquot_slice_core_share_ratio", *mine] == 0.3
    assert found["aliquot_slice_allocations_denied_total", *mine] == 0
    assert found["aliquot_slice_busy_seconds_total", *mine] == 0
    assert found["aliquot_card_memory_total_bytes", *card] == 16 * GIB
    assert found["aliquot_card_memory_promised_bytes", *card] == 8 * GIB
    assert found["aliquot_card_healthy", *card] == 1
    for call in ("Allocate", "PreStartContainer"):
        assert found["aliquot_plugin_call_seconds_count", "", "", "", call, "ok"] == 1
    assert samples(fetch(url))["aliquot_slice_memory_used_bytes", *mine] == 0, "the dead use nothing"


def test_what_a_tenant_says_is_told_as_far_as_it_can_be_true(make_world: MakeWorld):
    """Sums over a card or a node are made of it: no more memory than the card has, no more time than has passed.

    Nor does a page that cannot be read for once begin anew with all the time since the machine's start.
    """
    world = make_world(start=False)
    url = start_and_serve(world)
    held = world.admit("boasts", 1024, 30)
    world.kubelet.pre_start(held)
    mine, page = (world.uuids[0], "boasts", "main", "", ""), world.usage(held.nonce)

    def told(name: str) -> float | None:
        return samples(fetch(url)).get((f"aliquot_slice_{name}", *mine))

    process = subprocess.Popen(["/bin/sleep", "60"])
    occupy(page, process, 1 << 46)
    say(page, 2**62)
    assert told("memory_used_bytes") == world.machine.cards[0].memory_mib << 20
    process.kill()
    process.wait()
    assert 0 < (told("busy_seconds_total") or 0) < 1.3 * time.monotonic()
    whole = page.read_bytes()
    say(page, 0)
    assert told("busy_seconds_total") == 0
    page.write_bytes(b"nothing")
    assert told("busy_seconds_total") is None
    page.write_bytes(whole)
    assert (told("busy_seconds_total") or 0) < 10


def test_the_time_of_an_uncapped_slice_is_not_told(make_world: MakeWorld):
    """The interceptor does not measure it, and an unmeasured time is left out rather than shown as none."""
    world = make_world(start=False)
    url = start_and_serve(world)
    share = CardShare(world.uuids[0], 1024, 0)
    pod = world.pod("free", [container("main", slice_of("1Gi", 0))], {"main": [share]})
    world.kubelet.pre_start(world.kubelet.allocate(pod, "main", GPU, 1))
    found = samples(fetch(url))
    mine = (world.uuids[0], "free", "main", "", "")
    assert found["aliquot_slice_memory_limit_bytes", *mine] == GIB
    assert ("aliquot_slice_busy_seconds_total", *mine) not in found


def test_what_a_card_is_may_promise_and_has_reported(make_world: MakeWorld):
    """Its model, what a slice takes of what may be promised, and errors by their numbers, harmless ones too."""
    world = make_world(start=False)
    url = start_and_serve(world)
    share = CardShare(world.uuids[1], 8 * 1024, 30)
    pod = world.pod("infer", [container("main", slice_of("8Gi", 30))], {"main": [share]})
    world.kubelet.pre_start(world.kubelet.allocate(pod, "main", GPU, 1))
    for xid in (31, 31, 79):
        world.machine.raise_xid(1, xid)

    def told(name: str, **wanted: str) -> list[float]:
        families = text_string_to_metric_families(fetch(url))
        samples = [s for family in families for s in family.samples if s.name == f"aliquot_card_{name}"]
        return [s.value for s in samples if wanted.items() <= s.labels.items()]

    sick, well = world.uuids[1], world.uuids[0]
    until(lambda: told("errors_total", card=sick, error="xid_79") == [1], "the error is counted")
    assert told("errors_total", card=sick, error="xid_31") == [2]
    assert told("errors_total", card=well) == []
    until(lambda: told("healthy", card=sick) == [0], "the card is unhealthy")
    info = {"index": "1", "model": world.machine.cards[1].model, "mig": "false", "node": world.node}
    assert told("info", card=sick, **info) == [1]
    assert told("memory_guaranteed_bytes", card=sick) == [8 * GIB]
    assert told("memory_promisable_bytes") == told("memory_total_bytes") == [16 * GIB, 16 * GIB]
    assert told("core_promised_ratio", card=sick) == [0.3]
    assert told("core_promisable_ratio") == [1, 1]


def test_a_page_that_is_not_used_is_counted(make_world: MakeWorld):
    """By what is wrong with it; all reasons are told from the beginning."""
    world = make_world(start=False)
    url = start_and_serve(world)
    share = CardShare(world.uuids[0], 1024, 30)
    pod = world.pod("harms", [container("main", slice_of("1Gi", 30))], {"main": [share]})
    held = world.kubelet.allocate(pod, "main", GPU, 1)
    world.kubelet.pre_start(held)

    def told() -> dict[str, float]:
        families = text_string_to_metric_families(fetch(url))
        found = [one for family in families for one in family.samples]
        return {
            one.labels["reason"]: one.value for one in found if one.name == "aliquot_page_rejections_total"
        }

    assert told() == {"cut-short": 0, "foreign": 0, "version": 0, "layout": 0}
    os.truncate(world.usage(held.nonce), 10)
    until(lambda: told()["cut-short"] > 0, "the first reason")
    world.usage(held.nonce).write_bytes(bytes(200_000))
    until(lambda: told()["foreign"] > 0, "the second")
    assert told()["version"] == told()["layout"] == 0
