"""A real Prometheus at a service that lets in only who may: by certificate, by token, and not without."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from aliquot.sandbox.cluster.cluster import PocketCluster
from aliquot.sandbox.cluster.processes import wait_for
from tests.integration.extenders import two_nodes
from tests.integration.identities import Identities, grant, make_account, token_of
from tests.integration.test_callers import METRICS, Guarded
from tests.observe.prometheus import PATIENCE_S, Prometheus, Target

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PocketCluster]:
    """Two nodes with two cards each."""
    with two_nodes(tmp_path / "c") as made:
        yield made


@pytest.fixture
def extender(cluster: PocketCluster, tmp_path: Path) -> Iterator[Guarded]:
    """It lets in certificates and tokens."""
    made = Guarded(cluster, Identities.make(tmp_path / "pki"))
    try:
        made.start()
        yield made
    finally:
        made.process.stop()


def test_a_scrape_carries_a_certificate_or_a_token(cluster: PocketCluster, extender: Guarded, tmp_path: Path):
    """As `authorization` and `tls_config` of a scrape say; without either, Prometheus is told why it gets nothing."""
    identities = extender.identities
    account = make_account(cluster, "prometheus")
    grant(cluster, account, "metrics", METRICS)
    token = tmp_path / "token"
    token.write_text(token_of(cluster, account))
    cert, key = identities.issue("prometheus")
    ways: dict[str, Mapping[str, Any]] = {
        "by-certificate": {"tls_config": {"cert_file": str(cert), "key_file": str(key)}},
        "by-token": {"authorization": {"credentials_file": str(token)}},
        "without": {},
    }
    address = extender.url.removeprefix("https://")
    scraped = [Target(job, address, {}, identities.ca, more) for job, more in ways.items()]
    with Prometheus(tmp_path / "p", scraped) as prometheus:
        wait_for("all to be tried", lambda: len(prometheus.query("up")) == len(ways), PATIENCE_S)
        found = prometheus.query("aliquot_scheduler_leader")
        assert {labels["job"] for labels, _ in found} == {"by-certificate", "by-token"}
        assert list(prometheus.unscraped()) == ["without"]
        assert "401" in prometheus.unscraped()["without"]
