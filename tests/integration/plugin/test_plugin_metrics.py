"""What Prometheus is told."""

import socket
import subprocess
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from small_kubelet import until
from world import GPU, MakeWorld, container, occupy, slice_of

from aliquot.placement import CardShare

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


def test_slices_cards_and_calls_are_measured(make_world: MakeWorld):
    """A slice's limit and use, a card's promise, and how long the kubelet's calls took."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world = make_world(start=False)
    world.start_plugin("--metrics-port", str(port), "--metrics-host", "127.0.0.1")
    base = f"http://127.0.0.1:{port}"
    until(lambda: fetch(f"{base}/readyz") == "ok\n", "ready")
    share = CardShare(world.uuids[1], 8 * 1024, 30)
    pod = world.pod("infer", [container("main", slice_of("8Gi", 30))], {"main": [share]})
    held = world.kubelet.allocate(pod, "main", GPU, 1)
    world.kubelet.pre_start(held)
    process = subprocess.Popen(["/bin/sleep", "60"])
    occupy(world.usage(held.nonce), process, 3 * GIB)
    found = samples(fetch(f"{base}/metrics"))
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
