"""Certificates that have ended or do not fit, and rights that are missing."""

import base64
import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
import yaml

from aliquot.doctor.facts.cluster import COMPONENTS, Cluster
from aliquot.doctor.facts.fact import Fact
from aliquot.doctor.facts.helm_release import helm_command
from aliquot.doctor.facts.objects import WebhookConfiguration, Workload
from aliquot.doctor.facts.rights import RIGHTS
from aliquot.doctor.finding import Result, with_helm_command
from aliquot.kube.objects import Pod
from aliquot.server.cert_rotation import Secret
from aliquot.server.certs import SKEW, new_authority
from tests.deploy import charts
from tests.unit.doctor.clusters import (
    NAMESPACE,
    NOW,
    Json,
    authority,
    broken,
    configuration,
    found,
    healthy,
    pod,
    read,
    secret,
    worst,
)

FAILURE, WARNING, OK = Result.FAILURE, Result.WARNING, Result.OK
DAY = dt.timedelta(days=1)
NAMES = tuple(f"{name}-tls" for name in COMPONENTS)


def with_secret(name: str, one: Secret | None) -> Cluster:
    """A cluster with another Secret."""
    return broken(secrets={**healthy().secrets, name: Fact.of(one)})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("more", "result", "words"),
    [
        ({"begun": 91 * DAY}, FAILURE, "ended on 2026-11-22"),
        ({"begun": -DAY}, FAILURE, "begins only on 2026-11-24"),
        ({"begun": 85 * DAY}, WARNING, "has not been renewed"),
        ({"begun": 60 * DAY}, OK, ""),
        ({"names": ["somebody.else"]}, FAILURE, ".aliquot-system.svc"),
    ],
)
def test_a_certificate(name: str, more: Json, result: Result, words: str):
    """Too old, too young, not renewed, or somebody else's."""
    seen = worst(with_secret(name, secret(name, **more)), "certificates")
    assert (seen.result, words in seen.seen) == (result, True), seen
    assert result is OK or seen.objects == (name,)


def test_a_secret_that_is_not_there_comes_back_by_the_keeper():
    """Or by an upgrade, where the chart gives it no right to make Secrets; the remedy says which, and where."""
    gone = with_secret("aliquot-webhook-tls", None)
    assert "aliquot-certs makes it anew within a minute" in worst(gone, "certificates").remedy
    rights = {right: fact for right, fact in gone.rights.items() if right.when != "heals"}
    told = [worst(replace(gone, rights=rights), "certificates")]
    (one,) = with_helm_command(told, helm_command(replace(gone, namespace="gpu")))
    remedy = one.remedy
    assert remedy.startswith("helm upgrade aliquot CHART --namespace gpu --reset-then-reuse-values makes")


@pytest.mark.parametrize("name", NAMES)
def test_no_certificate(name: str):
    """No Secret, or one that is still empty."""
    assert worst(with_secret(name, None), "certificates").objects == (name,)
    assert worst(with_secret(name, Secret()), "certificates").objects == (name,)


def test_the_schedulers_certificate_is_a_clients_too():
    """By its common name the extender knows kube-scheduler."""
    name = "aliquot-scheduler-tls"
    seen = worst(with_secret(name, secret(name, common_name="me")), "certificates")
    assert (seen.result, "its common name is me" in seen.seen) == (FAILURE, True)


def test_a_key_of_another_certificate():
    """The server does not start with it."""
    one, other = (secret("aliquot-webhook-tls") for _ in range(2))
    mixed = read({"data": {**one.data, "tls.key": other.data["tls.key"]}}, Secret)
    assert "do not belong together" in worst(with_secret("aliquot-webhook-tls", mixed), "certificates").seen


def test_a_certificate_of_another_ca_than_its_callers_trust():
    """ca.crt beside it is what replicas and Prometheus trust."""
    one = secret("aliquot-agent-tls")
    stranger = base64.b64encode(new_authority(DAY, NOW).pem).decode()
    mixed = read({"data": {**one.data, "ca.crt": stranger}}, Secret)
    assert "no CA of its own ca.crt" in worst(with_secret("aliquot-agent-tls", mixed), "certificates").seen


def bundle(pem: bytes) -> dict[str, Any]:
    """The clientConfig of webhooks that are known by this CA."""
    service = {"namespace": "aliquot-system", "name": "aliquot-webhook"}
    return {"clientConfig": {"service": service, "caBundle": base64.b64encode(pem).decode()}}


@pytest.mark.parametrize(
    ("pem", "words"),
    [
        (b"", "has no caBundle"),
        (b"no certificate", "has no caBundle"),
        (new_authority(DAY, NOW).pem, "caBundle of another CA"),
    ],
)
def test_a_ca_bundle_that_does_not_fit(pem: bytes, words: str):
    """The API server could not call the webhook."""
    seen = worst(broken(webhooks=Fact.of(configuration(**bundle(pem)))), "certificates")
    assert (seen.result, words in seen.seen) == (FAILURE, True)


def test_two_cas_while_one_follows_the_other():
    """Trusted are both."""
    both = new_authority(DAY, NOW).pem + authority().pem
    assert worst(broken(webhooks=Fact.of(configuration(**bundle(both)))), "certificates").result is OK


def scheduler_pod(started: str, name: str = "scheduler") -> Pod:
    """A pod of the scheduler's whose kube-scheduler runs since then."""
    running = {"name": "kube-scheduler", "ready": True, "state": {"running": {"startedAt": started}}}
    return pod(name, namespace=NAMESPACE, status={"containerStatuses": [running]})


@pytest.mark.parametrize(
    ("started", "result"),
    [("2026-11-20T11:59:59Z", WARNING), ("2026-11-20T12:00:01Z", OK)],
    ids=["before the CA was made", "after it"],
)
def test_a_kube_scheduler_that_has_not_read_the_newest_ca(started: str, result: Result):
    """It reads its CAs once: it has to start anew before a certificate of the new one is shown to it."""
    old, new = authority(), new_authority(365 * DAY, NOW - 3 * DAY + SKEW)
    one = secret("aliquot-scheduler-tls")
    both = base64.b64encode(old.pem + new.pem).decode()
    known = read({"data": {**one.data, "ca.crt": both}}, Secret)
    secrets = {**healthy().secrets, "aliquot-scheduler-tls": Fact.of(known)}
    first, second = scheduler_pod(started), scheduler_pod("2026-11-22T00:00:00Z", "other")
    seen = worst(broken(secrets=secrets, own_pods=Fact.of((first, second))), "certificates")
    assert seen.result is result, seen
    if result is WARNING:
        assert seen.objects == ("scheduler",)
        assert seen.remedy.startswith(f"kubectl -n {NAMESPACE} rollout restart deployment/aliquot-scheduler")


def kept_by(mode: str, **changes: Any) -> Cluster:
    """A cluster whose certificates somebody else than aliquot-certs keeps, as the chart renders it."""
    values = {"mode": mode, "caBundle": new_authority(DAY, NOW).pem.decode() if mode == "existing" else ""}
    kind = "MutatingWebhookConfiguration"
    (document,) = [one for one in charts.objects({"certificates": values}) if one["kind"] == kind]
    known = {**healthy().workloads, "aliquot-certs": Fact.of(None)}
    return broken(workloads=known, webhooks=Fact.of(read(document, WebhookConfiguration)), **changes)


@pytest.mark.parametrize(
    ("mode", "remedies"),
    [
        ("cert-manager", ("cainjector", "describe certificate aliquot-agent")),
        ("existing", ("--set-file certificates.caBundle=ca.crt", "make it anew")),
    ],
)
def test_the_remedy_is_for_whoever_keeps_the_certificates(mode: str, remedies: tuple[str, str]):
    """Of a caBundle and of certificates that ended, are old or are missing: no aliquot-certs that is not there."""
    for begun in (91 * DAY, 85 * DAY, None):
        one = secret("aliquot-agent-tls", begun=begun) if begun else None
        secrets = {**healthy().secrets, "aliquot-agent-tls": Fact.of(one)}
        told = [each for each in found(kept_by(mode, secrets=secrets), "certificates") if each.remedy]
        assert [each.objects[0] for each in told] == ["aliquot-agent-tls", "placement.aliquot.dev"]
        assert not [each for each in told if "aliquot-certs" in each.remedy]
        assert remedies[0] in told[1].remedy
        assert remedies[1] in told[0].remedy, told[0]


def test_the_remedy_names_all_where_it_is_not_known_who_keeps_the_certificates():
    """A user who may not look at Deployments is told of each."""
    hidden = Fact[Workload | None].unknown("you lack the right to get deployments")
    cluster = broken(
        workloads={**healthy().workloads, "aliquot-certs": hidden},
        webhooks=Fact.of(configuration(**bundle(b""))),
    )
    (told,) = [each for each in found(cluster, "certificates") if each.result is FAILURE]
    assert "deployment/aliquot-certs" in told.remedy
    assert "cert-manager" in told.remedy


@pytest.mark.parametrize("right", [RIGHTS[0], RIGHTS[-1]], ids=str)
def test_a_right_that_an_account_lacks(right: Any):
    """It is named as `kubectl auth can-i` has it."""
    seen = worst(broken(rights={**healthy().rights, right: Fact.of(value=False)}), "rights")
    assert (seen.result, seen.objects) == (FAILURE, (str(right),))
    assert right.account in seen.seen


def expanded(rule: Json) -> set[tuple[str, str, str, str]]:
    """Verb, group, resource and name of a rule."""
    return {
        (verb, group, resource, name)
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for name in rule.get("resourceNames", [""])
    }


def test_the_rights_are_those_that_the_chart_gives():
    """All that its roles allow the four accounts, and nothing else."""
    golden = yaml.safe_load((charts.ROOT / "tests/deploy/golden/rbac.yaml").read_text())
    given = {
        (key.rpartition("/")[2], *one, key.startswith("Role/"))
        for key, role in golden.items()
        if "rules" in role and key.rpartition("/")[2] in {right.account for right in RIGHTS}
        for rule in role["rules"]
        for one in expanded(rule)
    }
    asked = {(r.account, r.verb, r.group, r.resource, r.name, r.namespaced) for r in RIGHTS}
    assert asked == given


def test_all_is_told_of_several_certificates():
    """One that is broken hides none of the others."""
    told = found(with_secret("aliquot-webhook-tls", None), "certificates")
    assert [one.result for one in told].count(OK) == 3
