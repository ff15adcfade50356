"""When certificates end, as Prometheus is told."""

from pathlib import Path

import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry, generate_latest

from aliquot.server.certificate_metrics import CertificateCollector, not_after
from aliquot.server.certs import write_pair


@pytest.mark.parametrize("days", [1, 365, 3650, 30 * 365])
def test_the_date_is_what_a_library_reads(tmp_path: Path, days: int):
    """Before 2050 and after, when it is written in another way; of CAs, too."""
    pair = write_pair(tmp_path, ["node.example", "127.0.0.1"], days=days)
    for file in (pair.cert, pair.ca):
        pem = file.read_bytes()
        assert not_after(pem.decode()) == x509.load_pem_x509_certificate(pem).not_valid_after_utc


def test_each_file_is_read_at_each_scrape(tmp_path: Path):
    """A renewed certificate shows; one that cannot be read is left out, and the others are told."""
    pair = write_pair(tmp_path, ["a"], days=10)
    registry = CollectorRegistry()
    registry.register(
        CertificateCollector(pair.cert, None, pair.ca, tmp_path / "missing.crt", tmp_path / "a" / "ca.crt")
    )

    def told(name: str) -> float | None:
        return registry.get_sample_value(
            "aliquot_certificate_expires_timestamp_seconds", {"certificate": name}
        )

    before, authority = told("tls.crt"), told("ca.crt")
    assert before is not None
    assert authority is not None
    assert told("missing.crt") is None
    write_pair(tmp_path, ["a"], days=20)
    assert told("tls.crt") == pytest.approx(before + 10 * 86400, abs=60)
    assert told("ca.crt") == authority
    pair.cert.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert told("tls.crt") is None
    assert b"ca.crt" in generate_latest(registry)
