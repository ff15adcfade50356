"""Until when a service's certificates last, for Prometheus; read from their files at each scrape.

The files are DER in PEM, of which only the one date is read, without a library that knows the rest: those take more
memory than all else that the webhook does.
"""

import datetime as dt
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_END: Final = "-----END CERTIFICATE-----"
_VERSION, _UTC_TIME = 0xA0, 0x17
_LONG: Final = 0x80
"""A length of more than a byte says in how many bytes it follows."""
_TIMES: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}

_log = logging.getLogger(__name__)


class CertificateCollector(Collector):
    """Tells of the first certificate of each file; of one that cannot be read nothing."""

    def __init__(self, *files: Path | None) -> None:
        """Read nothing yet; None stands for a file that there is not, and files of one name for the first of them."""
        self._files = {file.name: file for file in reversed(files) if file is not None}

    def collect(self) -> Iterator[Metric]:
        """The dates now."""
        family = GaugeMetricFamily(
            "aliquot_certificate_expires_timestamp_seconds",
            "When a certificate ends, in seconds since 1970.",
            labels=["certificate"],
        )
        for name, file in sorted(self._files.items()):
            try:
                family.add_metric([name], not_after(file.read_text()).timestamp())
            except (OSError, ValueError, IndexError, KeyError) as error:
                _log.warning("certificate %s cannot be read: %s", file, error)
        yield family


def not_after(pem: str) -> dt.datetime:
    """When the first certificate of a file ends (RFC 5280, 4.1).

    Raises:
        ValueError, IndexError, KeyError: it is none.
    """
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN") : pem.index(_END)] + _END)
    (_, certificate), *_ = _parts(der)
    (_, signed), *_ = _parts(certificate)
    fields = [field for field in _parts(signed) if field[0] != _VERSION]
    _, _, _, (_, validity), *_ = fields
    _, (kind, text) = _parts(validity)
    return dt.datetime.strptime(text.decode(), _TIMES[kind]).replace(tzinfo=dt.UTC)


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements one after another, each as its tag and its content."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length >= _LONG:
            size = length - _LONG
            length, at = int.from_bytes(der[at : at + size]), at + size
        yield tag, der[at : at + length]
        at += length
