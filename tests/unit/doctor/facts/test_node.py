"""What is wrong with a node is named, with what to do."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from aliquot.doctor.all_checks import NODE_CHECKS
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.facts.node import Node, Process, Spec, Tenant, Toolkit
from aliquot.doctor.finding import Result
from tests.unit.doctor.nodes import (
    CDI,
    INSIDE,
    PLACES,
    PLUGINS,
    TENANT,
    UID,
    driver,
    found_on,
    healthy_node,
    runtime,
    using,
    versions,
    worst_with,
)

FAILURE, WARNING, NOT_CHECKED, OK = Result.FAILURE, Result.WARNING, Result.NOT_CHECKED, Result.OK
OTHER = "2ed99c6b-0000-0000-0000-000000000002"
CARD = "GPU-0"


def test_nothing_is_wrong_with_a_healthy_node():
    """Each check says so."""
    findings = found_on(healthy_node())
    assert [one for one in findings if one.result is not OK] == []
    assert {one.check for one in findings} == {check.name for check in NODE_CHECKS}


@pytest.mark.parametrize(
    "name", [field.name for field in fields(Node) if field.name not in {"places", "names"}]
)
def test_what_cannot_be_read_is_never_ok(name: str):
    """Some check says why; a driver that does not answer is a failure."""
    known = getattr(healthy_node(), name)
    unknown = Fact[object].unknown("it may not be seen")
    findings = found_on(
        replace(
            healthy_node(), **{name: dict.fromkeys(known, unknown) if isinstance(known, dict) else unknown}
        )
    )
    assert any(one.result is NOT_CHECKED and one.seen == "it may not be seen" for one in findings)
    failed = {one.check for one in findings if one.result is FAILURE}
    assert failed == ({"driver"} if name == "driver" else set())


@pytest.mark.parametrize(
    ("facts", "result", "words"),
    [
        ({"driver": driver("470.256.02", 11040)}, FAILURE, "before 510.39"),
        ({"driver": driver("510.39.01", 11060)}, OK, "CUDA 11.6"),
        ({"driver": driver("700.10", 14010)}, WARNING, "CUDA is 14.1"),
        ({"driver_files": Fact.of(frozenset({"libnvidia-ml.so.1"}))}, FAILURE, "no libcuda.so.1"),
    ],
)
def test_driver(facts: dict[str, Any], result: Result, words: str):
    """Too old for the agent, newer than the interceptor, or not where it is looked for."""
    seen = worst_with("driver", **facts)
    assert (seen.result, words in seen.seen) == (result, True), seen


@pytest.mark.parametrize(
    ("card", "result", "words"),
    [
        ({"compute_mode": 3}, FAILURE, "Exclusive_Process"),
        ({"compute_mode": 2}, FAILURE, "Prohibited"),
        ({"error": "GPU is lost"}, FAILURE, "GPU is lost"),
        ({"mig_enabled": True}, OK, "1 of them in MIG mode"),
    ],
)
def test_cards(card: dict[str, Any], result: Result, words: str):
    """Lost, or of a compute mode that lets nobody share them."""
    seen = worst_with("cards", driver=driver(**card))
    assert (seen.result, words in seen.seen) == (result, True), seen


def test_device_files():
    """Without nvidia-uvm CUDA does not start; it is missing after many a reboot."""
    seen = worst_with("device-files", device_files=Fact.of(frozenset({"nvidia0", "nvidiactl"})))
    assert (seen.result, seen.objects) == (FAILURE, ("nvidia-uvm",))


@pytest.mark.parametrize(
    ("told", "containerd", "result", "words"),
    [
        ({"cdi": False}, "2.4.2", FAILURE, "switches CDI off"),
        ({"cdi": True, "generation": 2}, "1.7.29", OK, "does CDI"),
        ({"generation": 2}, "1.7.29", FAILURE, "has CDI off unless"),
        ({"generation": 2}, "2.1.0", OK, "by itself"),
        ({"generation": 2}, "1.6.3", FAILURE, "has no CDI"),
        ({"generation": None}, "who knows", NOT_CHECKED, "cannot be read"),
        ({"cdi": True, "directories": ("/etc/cdi",)}, "2.4.2", FAILURE, "/var/run/cdi"),
        ({"directories": ("/etc/cdi", "/run/cdi")}, "2.4.2", OK, "does CDI"),
    ],
)
def test_runtime(told: dict[str, Any], containerd: str, result: Result, words: str):
    """CDI has to be on, and to be looked for where the agent writes it."""
    seen = worst_with("runtime", runtime=runtime(**told), versions=versions(containerd=containerd))
    assert (seen.result, words in seen.seen) == (result, True), seen


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("runc version 1.1.5+ds1", WARNING),
        ("runc version 1.2.7", WARNING),
        ("runc version 1.2.8", OK),
        ("runc version 1.3.2", WARNING),
        ("runc version 1.3.3", OK),
        ("runc version 1.4.0", OK),
        ("crun version 1.21", NOT_CHECKED),
        ("", NOT_CHECKED),
    ],
)
def test_runc(text: str, result: Result):
    """Old ones have ways out of a container."""
    assert worst_with("runc", versions=versions(runc=text)).result is result


def test_toolkit():
    """It takes no cards from whoever asks by environment, and has no known hole."""
    open_ = Fact.of(Toolkit(Path("/etc/x"), by_environment=True))
    assert "of pods in the RuntimeClass nvidia" in worst_with("toolkit", toolkit=open_).seen
    everywhere = worst_with("toolkit", toolkit=open_, runtime=runtime(default="nvidia"))
    assert (everywhere.result, "of every pod" in everywhere.seen) == (WARNING, True)
    old = worst_with("toolkit", versions=versions(nvidia_ctk="CLI version 1.17.7"))
    assert (old.result, "CVE-2025-23266" in old.seen) == (WARNING, True)
    assert worst_with("toolkit", toolkit=Fact.of(None)).result is OK


@pytest.mark.parametrize(
    ("specs", "result", "words"),
    [
        (None, FAILURE, "no directory /var/run/cdi"),
        ((Spec(CDI / "torn.json", error="KeyError 'kind'"),), WARNING, "torn.json"),
        ((Spec(CDI / "a", ("x/y=all",)), Spec(CDI / "b", ("x/y=all",))), FAILURE, "x/y=all in /run/cdi"),
        ((), OK, "none yet"),
    ],
)
def test_cdi(specs: tuple[Spec, ...] | None, result: Result, words: str):
    """Files that are torn, that contradict each other, or a directory that is not there."""
    seen = worst_with("cdi", specs={CDI: Fact.of(specs)})
    assert (seen.result, words in seen.seen) == (result, True), seen


def test_sockets():
    """The kubelet's, and ours: each that does not answer, and none at all."""
    have = healthy_node().sockets
    for path in have:
        refused = worst_with("sockets", sockets={**have, path: Fact.of("Connection refused")})
        assert (refused.result, refused.objects) == (FAILURE, (str(path),))
    without = {path: fact for path, fact in have.items() if path != PLUGINS / "aliquot-gpu.sock"}
    assert "no device plugin of Aliquot" in worst_with("sockets", sockets=without).seen


@pytest.mark.parametrize(
    ("registered", "result", "words"),
    [
        ({}, FAILURE, "knows no slices"),
        ({"aliquot.dev/gpu": 0}, FAILURE, "knows no slices"),
        ({"aliquot.dev/mig-1g.10gb": 7}, OK, "nobody else"),
        ({"aliquot.dev/gpu": 10, "nvidia.com/gpu": 1}, FAILURE, "NVIDIA's device plugin"),
        ({"aliquot.dev/gpu": 10, "nvidia.com/gpu": 0}, OK, "nobody else"),
    ],
)
def test_registered(registered: dict[str, int], result: Result, words: str):
    """By the kubelet's own notes."""
    seen = worst_with("registered", registered=Fact.of(registered))
    assert (seen.result, words in seen.seen) == (result, True), seen


ELSEWHERE = Tenant(OTHER, "main", (26, 77), frozenset({"GPU-1"}), frozenset())
MIG = Tenant(OTHER, "main", (26, 78), frozenset({"MIG-5"}), frozenset())


@pytest.mark.parametrize(
    ("process", "tenants", "result"),
    [
        (INSIDE, (TENANT,), OK),
        (Process(9, "miner", UID, None, frozenset()), (TENANT,), FAILURE),
        (Process(9, "miner", OTHER, None, frozenset({(26, 77)})), (TENANT, ELSEWHERE), FAILURE),
        (Process(9, "mig", OTHER, None, frozenset({(26, 78)})), (TENANT, MIG), OK),
        (Process(9, "hidden", UID, None, None), (TENANT,), NOT_CHECKED),
        (Process(9, "hidden", OTHER, None, None), (TENANT,), FAILURE),
        (Process(9, "run", "", (7, 4026531836, 99), frozenset()), (TENANT,), OK),
        (Process(9, "host", "", (9, 4026531836, 5), frozenset()), (TENANT,), FAILURE),
        (Process(9, "veiled", "", None, None), (TENANT,), NOT_CHECKED),
        (Process(9, "nv-hostengine", "", (9, 4026531836, 5), frozenset()), (TENANT,), OK),
        (Process(9, "miner", UID, (7, 4026531836, 99), frozenset()), (TENANT,), FAILURE),
    ],
)
def test_processes(process: Process, tenants: tuple[Tenant, ...], result: Result):
    """In a container by the page that is mounted there, not by what a tenant says; outside by the usage pages."""
    seen = worst_with("processes", **using(process), tenants=Fact.of(tenants))
    assert seen.result is result, seen
    assert result is OK or f"{process.name} 9 on card 0" in seen.seen


def test_leftovers():
    """Pages that outlive their pod by ten minutes, and CDI files whose page is gone."""
    dead = replace(TENANT, pod=OTHER, age_s=3600)
    seen = worst_with("leftovers", tenants=Fact.of((TENANT, dead)))
    assert (seen.result, seen.objects) == (WARNING, (f"{OTHER}/main",))
    assert worst_with("leftovers", tenants=Fact.of((replace(dead, age_s=5),))).result is OK
    orphan = Spec(CDI / "a.json", ("aliquot.dev/slice=a",), (Path("/run/aliquot/host/tenants/x/control"),))
    assert worst_with("leftovers", specs={CDI: Fact.of((orphan,))}).objects == (str(orphan.file),)


def test_a_pod_is_told_what_it_cannot_ask():
    """Programs of the host are started on the host alone."""
    assert PLACES.on_host
    assert not replace(PLACES, root=Path("/host/proc/1/root")).on_host
    assert CARD in TENANT.cards
