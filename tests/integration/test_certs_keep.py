"""Certificates kept in a cluster: made, rotated, whoever is killed or works beside, and in use without a failure."""

import asyncio
import base64
import datetime as dt
import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cryptography import x509

from aliquot.kube.api import Api
from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import free_port, wait_for
from aliquot.server.cert_rotation import CA_SECRET, CertRotation, Terms, Wanted, certificates_in, usual
from aliquot.server.certs import new_authority, new_leaf
from tests.integration.certificates import (
    DAY,
    LEAVES,
    NAMESPACE,
    Document,
    bundle,
    check,
    keeping,
    prepare,
    secret,
    state,
    trusted,
)

CONFIGURATIONS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
WRITES = ("POST", "PUT", "PATCH", "DELETE")


@pytest.fixture(name="cluster")
def run_cluster(tmp_path: Path) -> Iterator[PocketCluster]:
    """An API server with our namespace and our webhooks' configuration."""
    with PocketCluster(tmp_path / "c") as cluster:
        cluster.start_apiserver()
        prepare(cluster)
        yield cluster


class Dead(BaseException):
    """What becomes of a keeper that is killed."""


class Mortal(Api):
    """An API client whose owner dies at its n-th write: before it is sent, or when it was done and nobody heard."""

    writes = 0
    dies_at = -1
    after = False

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        """One request, and perhaps the last."""
        if method not in WRITES:
            return await super().request(method, path, **more)
        self.writes += 1
        if self.writes == self.dies_at and not self.after:
            raise Dead
        answer = await super().request(method, path, **more)
        if self.writes == self.dies_at:
            raise Dead
        return answer


class Overtaken(Api):
    """An API client whose owner is overtaken: before its n-th write, another keeper does all that is to be done."""

    writes = 0
    overtaken_at = 1
    other: CertRotation

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        """One request."""
        if method in WRITES:
            self.writes += 1
            if self.writes == self.overtaken_at:
                await self.other.settle()
        return await super().request(method, path, **more)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = dt.datetime.now(dt.UTC).replace(microsecond=0)

    def __call__(self) -> dt.datetime:
        """Now."""
        return self.time

    def pass_days(self, days: float) -> None:
        """Let time pass."""
        self.time += dt.timedelta(days=days)


def settle(cluster: PocketCluster, clock: Clock, *, dies_at: int = -1, after: bool = False) -> int:
    """A keeper that lives until all is good, or dies; how often it wrote."""

    async def run() -> int:
        api = Mortal.from_kubeconfig(cluster.kubeconfig)
        api.dies_at, api.after = dies_at, after
        async with api:
            try:
                await CertRotation(api, NAMESPACE, usual(NAMESPACE), now=clock).settle()
            except Dead:
                assert api.writes == dies_at
            return api.writes

    return asyncio.run(run())


def test_all_is_made_once_and_then_left_alone(cluster: PocketCluster):
    """Names, common names, keys that fit, and the CA in every webhook; a second look writes nothing."""
    clock = Clock()
    assert settle(cluster, clock) == 5
    check(cluster)
    for name in LEAVES:
        held = secret(cluster, name)
        leaf = x509.load_pem_x509_certificate(held["tls.crt"])
        service = name.removesuffix("-tls")
        assert leaf.subject.rfc4514_string() == f"CN={service}"
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert f"{service}.{NAMESPACE}.svc" in names.get_values_for_type(x509.DNSName)
        assert (leaf.not_valid_after_utc - clock.time).days == 90
        assert held["ca.crt"] == bundle(cluster) == secret(cluster, CA_SECRET)["ca.crt"]
    assert settle(cluster, clock) == 0


def test_leaves_are_renewed_at_two_thirds_and_the_ca_stays(cluster: PocketCluster):
    """Not before."""
    clock = Clock()
    settle(cluster, clock)
    before = state(cluster)
    clock.pass_days(59.9)
    assert settle(cluster, clock) == 0
    clock.pass_days(0.2)
    assert settle(cluster, clock) == 3
    after = state(cluster)
    assert after[CA_SECRET] == before[CA_SECRET]
    assert all(after[name]["tls.key"] != before[name]["tls.key"] for name in LEAVES)
    check(cluster)


def test_a_new_ca_is_trusted_before_it_signs_and_the_old_one_after(cluster: PocketCluster):
    """One, two, two, one: and what signs changes in the middle."""
    clock = Clock()
    settle(cluster, clock)
    old = secret(cluster, CA_SECRET)["tls.crt"]
    seen = []
    for days in (3650 * 2 / 3 + 1, 29, 2, 28, 2):
        clock.pass_days(days)
        settle(cluster, clock)
        check(cluster)
        authorities = certificates_in(bundle(cluster))
        seen.append((len(authorities), trusted(secret(cluster, LEAVES[0])["tls.crt"], old)))
    assert seen == [(2, True), (2, True), (2, False), (2, False), (1, False)]


LOSSES: dict[str, Callable[[Document], Document | None]] = {
    "nothing of the CA": lambda _: None,
    "its key": lambda data: {**data, "tls.key": ""},
    "its certificate": lambda data: {**data, "tls.crt": base64.b64encode(b"rubbish").decode()},
    "what is trusted": lambda data: {k: v for k, v in data.items() if k != "ca.crt"},
}


@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_lost_is_made_good(cluster: PocketCluster, loss: str):
    """With a new CA where it must be; nobody is left with a certificate that others do not trust.

    Who trusts the old CA alone, as a client that has read it once, is served as before for the overlap.
    """
    clock = Clock()
    settle(cluster, clock)
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{CA_SECRET}"
    stored = cluster.kubectl.request("GET", path)
    old, leaf = secret(cluster, CA_SECRET)["tls.crt"], secret(cluster, LEAVES[0])["tls.crt"]
    data = LOSSES[loss](stored["data"])
    if data is None:
        cluster.kubectl.request("DELETE", path)
    else:
        cluster.kubectl.request("PUT", path, {**stored, "data": data})
    for days, served in ((0, True), (29, True), (2, loss == "what is trusted"), (30, False)):
        clock.pass_days(days)
        settle(cluster, clock)
        check(cluster, clock)
        assert trusted(secret(cluster, LEAVES[0])["tls.crt"], old) == (served or loss == "what is trusted")
        assert (secret(cluster, LEAVES[0])["tls.crt"] == leaf) == served
        assert settle(cluster, clock) == 0
    assert len(certificates_in(bundle(cluster))) == 1


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_ca_that_somebody_has_put_beside_one_certificate_is_not_trusted(
    cluster: PocketCluster, everywhere: bool
):
    """Whoever can write one Secret, or all of them, does not have the API server trust his webhook by it."""
    clock = Clock()
    settle(cluster, clock)
    mine = new_authority(dt.timedelta(days=365), clock())
    leaf = new_leaf(mine, "aliquot-agent", usual(NAMESPACE)[2].names, dt.timedelta(days=90), clock())
    for name in LEAVES if everywhere else LEAVES[2:]:
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"
        stored = cluster.kubectl.request("GET", path)
        given = {
            "tls.crt": leaf.pem,
            "tls.key": leaf.key_pem,
            "ca.crt": mine.pem + secret(cluster, name)["ca.crt"],
        }
        data = {key: base64.b64encode(value).decode() for key, value in given.items()}
        cluster.kubectl.request("PUT", path, {**stored, "data": data})
    cluster.kubectl.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/secrets/{CA_SECRET}")
    settle(cluster, clock)
    check(cluster)
    theirs = mine.certificate
    for pem in (bundle(cluster), *(secret(cluster, name)["ca.crt"] for name in (CA_SECRET, *LEAVES))):
        assert theirs not in certificates_in(pem)


def test_only_a_ca_is_taken_over_from_what_all_trust(cluster: PocketCluster):
    """A certificate of a service that somebody has put beside the CA everywhere is dropped."""
    clock = Clock()
    settle(cluster, clock)
    old, leaf = secret(cluster, CA_SECRET)["tls.crt"], secret(cluster, LEAVES[0])["tls.crt"]
    both = base64.b64encode(old + leaf).decode()
    for name in LEAVES:
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"
        stored = cluster.kubectl.request("GET", path)
        cluster.kubectl.request("PUT", path, {**stored, "data": {**stored["data"], "ca.crt": both}})
    configuration = cluster.kubectl.find(CONFIGURATIONS, "aliquot")
    assert configuration
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"]["caBundle"] = both
    cluster.kubectl.apply(configuration)
    cluster.kubectl.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/secrets/{CA_SECRET}")
    settle(cluster, clock)
    check(cluster)
    authorities = certificates_in(bundle(cluster))
    assert len(authorities) == 2
    assert certificates_in(old)[0] in authorities


@pytest.mark.parametrize("gone", [LEAVES, LEAVES[:1]])
def test_a_service_whose_certificate_is_gone_too_has_a_new_one_at_once(
    cluster: PocketCluster, gone: tuple[str, ...]
):
    """The others go on with theirs. The API server trusts both CAs: a service may show its old certificate yet."""
    clock = Clock()
    settle(cluster, clock)
    old = secret(cluster, CA_SECRET)["tls.crt"]
    for name in (CA_SECRET, *gone):
        cluster.kubectl.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")
    settle(cluster, clock)
    check(cluster)
    assert [trusted(secret(cluster, name)["tls.crt"], old) for name in LEAVES] == [
        n not in gone for n in LEAVES
    ]
    assert len(certificates_in(bundle(cluster))) == 2


def test_a_secret_that_is_made_anew_has_no_owner_of_its_labels(cluster: PocketCluster):
    """Helm sets the labels of its chart's Secrets, and refuses an upgrade where somebody else has set one."""
    settle(cluster, Clock())
    for name in (CA_SECRET, *LEAVES):
        found = cluster.kubectl.find("secrets", name, NAMESPACE)
        assert found
        assert not found["metadata"].get("labels")


def test_a_secret_that_a_chart_has_made_empty_is_filled(cluster: PocketCluster):
    """With its labels kept; so that nobody needs the right to create."""
    meta = {"name": LEAVES[0], "namespace": NAMESPACE, "labels": {"chart": "aliquot"}}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
    settle(cluster, Clock())
    found = cluster.kubectl.find("secrets", LEAVES[0], NAMESPACE)
    assert found
    assert found["metadata"]["labels"] == {"chart": "aliquot"}
    assert set(found["data"]) == {"ca.crt", "tls.crt", "tls.key"}


JOURNEY = {
    "the first look": (),
    "renewed leaves": (61.0,),
    "a CA to come": (3650 * 2 / 3 + 1,),
    "a CA that takes over": (3650 * 2 / 3 + 1, 31.0),
    "a CA that goes": (3650 * 2 / 3 + 1, 31.0, 31.0),
    "an expired CA": (3651.0,),
}


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before-a-write", "after-a-write"])
@pytest.mark.parametrize("moment", JOURNEY)
def test_a_keeper_may_be_killed_at_any_write(cluster: PocketCluster, moment: str, after: bool):
    """At each of its writes; trust is never broken then, and the next keeper finishes."""
    for dies_at in itertools.count(1):
        forget(cluster)
        clock = Clock()
        for days in JOURNEY[moment]:
            settle(cluster, clock)
            clock.pass_days(days)
        writes = settle(cluster, clock, dies_at=dies_at, after=after)
        check(cluster, clock)
        settle(cluster, clock)
        check(cluster)
        assert settle(cluster, clock) == 0
        if writes < dies_at:
            assert dies_at > 2
            return


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["the first look", "renewed leaves", "a CA that takes over"])
def test_who_is_overtaken_overwrites_nothing(cluster: PocketCluster, moment: str):
    """At each of its writes: what the other one has made stays."""
    for overtaken_at in itertools.count(1):
        forget(cluster)
        clock = Clock()
        for days in JOURNEY[moment]:
            settle(cluster, clock)
            clock.pass_days(days)
        writes, before = asyncio.run(_overtaken(cluster, clock, overtaken_at))
        assert state(cluster) == (before or state(cluster))
        check(cluster)
        if writes < overtaken_at:
            assert overtaken_at > 2
            return


async def _overtaken(
    cluster: PocketCluster, clock: Clock, overtaken_at: int
) -> tuple[int, dict[str, dict[str, bytes]]]:
    """How often it wrote, and what the other one had made; nothing if that one had not to."""
    made: dict[str, dict[str, bytes]] = {}

    class Noting(CertRotation):
        """Notes what there is when it has finished."""

        async def settle(self) -> None:
            """As ever."""
            await super().settle()
            made.update(state(cluster))

    slow = Overtaken.from_kubeconfig(cluster.kubeconfig)
    async with slow, Api.from_kubeconfig(cluster.kubeconfig) as fast:
        slow.overtaken_at = overtaken_at
        slow.other = Noting(fast, NAMESPACE, usual(NAMESPACE), now=clock)
        await CertRotation(slow, NAMESPACE, usual(NAMESPACE), now=clock).settle()
        return slow.writes, made


def forget(cluster: PocketCluster) -> None:
    """As if no keeper had ever been there."""
    for name in (CA_SECRET, *LEAVES):
        if secret(cluster, name):
            cluster.kubectl.delete("secrets", name, NAMESPACE)
    prepare(cluster)


@pytest.mark.timing
def test_several_keepers_that_are_killed_at_random(cluster: PocketCluster, tmp_path: Path):
    """Trust holds at every look of an independent eye, while CAs come and go.

    An overlap of two CAs is seconds here: a keeper that the machine keeps from running for as long signs by a CA that
    another has dropped meanwhile.
    """
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print(f"SEED={seed}")
    dice, seen = random.Random(seed), set[bytes]()
    with keeping(cluster, tmp_path, 2) as keepers:
        end = time.monotonic() + 60
        while time.monotonic() < end or len(seen) < 3:
            assert time.monotonic() < end + 200, "CAs do not change any more"
            if dice.random() < 0.1:
                keepers.kill(dice.randrange(2))
                keepers.start()
            check(cluster, lambda: dt.datetime.now(dt.UTC))
            seen.add(secret(cluster, CA_SECRET)["tls.crt"])


def test_certificates_on_a_disk(tmp_path: Path):
    """`aliquot certs make`: what a server and its clients need."""
    argv = [
        sys.executable,
        "-m",
        "aliquot.cli",
        "certs",
        "make",
        str(tmp_path / "tls"),
        "localhost",
        "127.0.0.1",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "localhost, 127.0.0.1" in done.stdout
    assert {file.name for file in (tmp_path / "tls").iterdir()} == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


@pytest.mark.slow
def test_a_webhook_that_comes_later_is_told_at_once(cluster: PocketCluster):
    """An upgrade that switches a dialect on adds one; until it knows the CA none of its pods can be made."""
    port = free_port()
    argv = [sys.executable, "-m", "aliquot.cli", "certs", "keep", "--kubeconfig", str(cluster.kubeconfig)]
    argv += ["--metrics-host", "127.0.0.1", "--metrics-port", str(port)]
    cluster.start("keeper", argv, ready_url=f"http://127.0.0.1:{port}/readyz")
    told = bundle(cluster)
    (first, *more) = cluster.kubectl.get(CONFIGURATIONS, "aliquot", "")["webhooks"]
    untold = {key: value for key, value in first["clientConfig"].items() if key != "caBundle"}
    late = {**first, "name": "late.aliquot.dev", "clientConfig": untold}
    cluster.kubectl.patch(CONFIGURATIONS, "aliquot", {"webhooks": [first, *more, late]}, "")

    def bundles() -> list[str]:
        webhooks = cluster.kubectl.get(CONFIGURATIONS, "aliquot", "")["webhooks"]
        return [each["clientConfig"].get("caBundle", "") for each in webhooks]

    wait_for("the late one to be told", lambda: {base64.b64decode(each) for each in bundles()} == {told})


def test_the_keeper_tells_when_certificates_end(cluster: PocketCluster):
    """By Secret; readiness comes with the first look."""
    port = free_port()
    argv = [sys.executable, "-m", "aliquot.cli", "certs", "keep", "--kubeconfig", str(cluster.kubeconfig)]
    cluster.start(
        "keeper",
        [*argv, "--metrics-host", "127.0.0.1", "--metrics-port", str(port), "--leaf", "x-tls=x.example"],
        ready_url=f"http://127.0.0.1:{port}/readyz",
    )
    lines = urllib3.request("GET", f"http://127.0.0.1:{port}/metrics").data.decode().splitlines()
    ends = {
        line.split('"')[1]: float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("aliquot_certs_expiry")
    }
    assert {name: round((end - time.time()) / DAY) for name, end in ends.items()} == {
        "x-tls": 90,
        CA_SECRET: 3650,
    }


def test_terms_and_names_are_read(cluster: PocketCluster):
    """A certificate for other names is made anew, though it is young."""

    async def keep(*names: str) -> None:
        async with Api.from_kubeconfig(cluster.kubeconfig) as api:
            await CertRotation(api, NAMESPACE, [Wanted("x-tls", names)], terms=Terms()).settle()

    asyncio.run(keep("a.example"))
    first = secret(cluster, "x-tls")
    asyncio.run(keep("a.example", "10.0.0.1"))
    second = secret(cluster, "x-tls")
    assert first["tls.crt"] != second["tls.crt"]
    assert first["ca.crt"] == second["ca.crt"]
