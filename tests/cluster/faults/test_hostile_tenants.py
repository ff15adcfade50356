"""Attacks of a container without capabilities on its node, from within, beside a neighbour that computes."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aliquot.api.names import CARD_UUID_ANNOTATION, LIBRARY_PATH
from aliquot.libshim._pages import lib
from aliquot.node.processes import identity_of
from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.faults.pods import LATER_S, LIMIT_HOLDS, MOST_OF_A_CARD, card_of, hostile, seconds_to_start
from tests.cluster.installation import NAMESPACE, RUN, Installation
from tests.cluster.scrapes import scrape
from tests.cluster.test_journey import ALLOCATE, PATIENCE_S, client, said
from tests.cluster.test_upgrade import begin
from tests.cluster.traffic import await_its_share
from tests.integration.plugin import hostile_locks
from tests.integration.plugin.waits import longest_silence_s

pytestmark = pytest.mark.cluster

AGENT = "app.kubernetes.io/component=agent"
METRICS_PORT = 9464
READER = "reads-metrics"
LOCKS = 500_000
WATCHED_S = 2.0
PAGES = ("/run/aliquot/usage", "/run/aliquot/control")
BOTH_CARDS = {"aliquot.dev/gpu": "2", "aliquot.dev/gpu-mem": MOST_OF_A_CARD}
EMPTY = 'print("ready", flush=True)\nimport time; time.sleep(1000)\n'
CLAIM = """
with open({page!r}, "r+b") as page:
    page.seek({at})
    page.write({slot!r} * {count})
"""
PRELOADED = """
import os
print("preload", os.environ.get("LD_PRELOAD"), open("/etc/ld.so.preload").read().split())
"""


@dataclass
class Neighbours:
    """Those who must notice nothing: who scrapes the agent, and who starts the next pod."""

    installed: Installation
    kubeconfig: Path

    def scrape_s(self) -> float:
        """How long the agent takes to tell its metrics."""
        tls = self.installed.release.mounted("aliquot-agent-tls")
        (agent,) = self.installed.kubectl.list("pods", NAMESPACE, labelSelector=AGENT)
        begun = time.monotonic()
        answer = scrape(agent["status"]["podIP"], METRICS_PORT, tls / "ca.crt", self.kubeconfig)
        took = time.monotonic() - begun
        assert answer.status == 200
        return took

    def look(self, name: str) -> tuple[float, float]:
        """Seconds that a scrape takes, and the start of a pod of this name."""
        return self.scrape_s(), seconds_to_start(self.installed, name)


@pytest.fixture
def neighbours(installed: Installation) -> Iterator[Neighbours]:
    """With an account that may read metrics, and no other right."""
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "aliquot-metrics"}
    installed.kubectl.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": READER},
            "roleRef": role,
            "subjects": [subject],
        }
    )
    who = "system:serviceaccount:default:default"
    url = {"path": "/metrics", "verb": "get"}
    wait_for("the right to hold", lambda: installed.plane.may(who, nonResourceAttributes=url))
    yield Neighbours(installed, installed.plane.service_account("default", "default"))
    installed.kubectl.delete("clusterrolebindings.rbac.authorization.k8s.io", READER, "")


def test_a_page_that_names_processes_of_the_node_keeps_no_slice(installed: Installation):
    """They live on when its pod has gone, and the next one gets most of both cards at once, beside a neighbour."""
    (steady,) = begin(installed, "steady-0")
    before = seconds_for_both_cards(installed, "before", ALLOCATE)
    of_the_node = identity_of(1, installed.node.box.path("/proc"))
    assert of_the_node
    claim = CLAIM.format(
        page=PAGES[0],
        at=hostile_locks.SLOTS_AT,
        slot=hostile_locks.claimed(*of_the_node),
        count=lib.AQ_MAX_SLOTS,
    )
    seconds_for_both_cards(installed, "names", claim + EMPTY)
    after = seconds_for_both_cards(installed, "next", ALLOCATE)
    print("seconds to start:", before, after)
    assert after < before + LATER_S
    await_its_share(steady)
    steady.check()


def seconds_for_both_cards(installed: Installation, name: str, program: str) -> float:
    """How long a pod takes to start that leaves room for no other like it; it goes again, and all that it had."""
    begun = time.monotonic()
    installed.kubectl.apply(hostile(name, program, BOTH_CARDS))
    said(installed, name, "ready")
    took = time.monotonic() - begun
    uid = installed.kubectl.get("pods", name)["metadata"]["uid"]
    pages = installed.node.box.path(f"{RUN}/tenants/{uid}")
    assert pages.exists()
    installed.kubectl.delete("pods", name, grace=1)
    installed.kubectl.wait_gone("pods", name, PATIENCE_S)
    wait_for("its pages to go", lambda: not pages.exists(), PATIENCE_S)
    return took


def test_locks_on_its_pages_hold_up_nobody(installed: Installation, neighbours: Neighbours):
    """A million of them: neither the arbiter, nor the neighbour on its card, nor a scrape, nor the next pod.

    It says to have work in flight without end as well. The neighbour has no more for that, once it was looked for.
    """
    (steady,) = begin(installed, "steady-0")
    before = neighbours.look("before")
    manifest = hostile("locks", hostile_locks.program(*PAGES, LOCKS))
    manifest["metadata"]["annotations"] = {CARD_UUID_ANNOTATION: card_of(installed, "steady-0")}
    installed.kubectl.apply(manifest)
    said(installed, "locks", "ready")
    await_its_share(steady)
    steady.watch()
    silence_s = longest_silence_s(steady.control, WATCHED_S)
    after = neighbours.look("next")
    steady.check_time()
    steady.check()
    print("seconds to scrape and to start:", before, after, "percent of the card:", steady.share())
    print("the arbiter's longest silence:", silence_s)
    assert silence_s < WATCHED_S / 2
    assert all(later < earlier + LATER_S for earlier, later in zip(before, after, strict=True))
    installed.kubectl.delete("pods", "locks", grace=1)
    installed.kubectl.wait_gone("pods", "locks", PATIENCE_S)
    steady.check_time()


def test_an_annotation_taken_away_before_the_start_takes_no_limit_away(installed: Installation):
    """The container's environment preloads nothing then, so the node mounts the list that does."""
    (steady,) = begin(installed, "steady-0")
    manifest = client("edited", program=PRELOADED + ALLOCATE)
    manifest["metadata"]["annotations"] = {"aliquot.dev/inject": "file"}
    manifest["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    installed.kubectl.apply(manifest)
    edit = {"metadata": {"annotations": {"aliquot.dev/inject": None}}}
    installed.kubectl.patch("pods", "edited", edit)
    assert "annotations" not in installed.kubectl.get("pods", "edited")["metadata"]
    installed.kubectl.patch("pods", "edited", {"spec": {"schedulingGates": None}})
    log = said(installed, "edited", "ready")
    assert f"preload None {[LIBRARY_PATH]}" in log
    assert LIMIT_HOLDS in log
    await_its_share(steady)
