"""Certificates: who trusts them, who may read them, and renewal under a running server."""

import asyncio
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from aliquot.server.certs import write_pair
from aliquot.server.tls import CertificatePair, server_context


def serial(pair: CertificatePair) -> int:
    """Return the serial number of the certificate on disk."""
    return x509.load_pem_x509_certificate(pair.cert.read_bytes()).serial_number


async def presented(port: int, pair: CertificatePair, name: str) -> int:
    """Shake hands with a server as a client that trusts the pair's CA; return the serial it presents."""
    trust = ssl.create_default_context(cafile=str(pair.ca))
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=name)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der).serial_number


async def serve(context: ssl.SSLContext) -> tuple[asyncio.Server, int]:
    """Run a TLS server that says nothing."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    return server, server.sockets[0].getsockname()[1]


def test_a_server_is_trusted_by_its_names_alone(tmp_path: Path):
    """Every name and address given is good for a handshake, and no other."""

    async def scene() -> None:
        pair = write_pair(tmp_path, ["aliquot.aliquot-system.svc", "localhost", "127.0.0.1", "::1"])
        server, port = await serve(server_context(pair.cert, pair.key))
        async with server:
            for name in ("aliquot.aliquot-system.svc", "localhost", "127.0.0.1", "::1"):
                assert await presented(port, pair, name) == serial(pair)
            with pytest.raises(ssl.SSLCertVerificationError):
                await presented(port, pair, "example.com")

    asyncio.run(scene())


def test_only_the_owner_reads_the_files(tmp_path: Path):
    """Keys, and the certificates beside them, are 0600; nothing temporary stays behind."""
    write_pair(tmp_path, ["localhost"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), 0o600)


def test_a_renewed_certificate_is_presented_at_once_and_trusted_by_the_old_ca(tmp_path: Path):
    """Handshakes before and after a renewal see the old and the new certificate; clients need not be told."""

    async def scene() -> None:
        pair = write_pair(tmp_path, ["localhost"])
        before, ca = serial(pair), pair.ca.read_bytes()
        server, port = await serve(server_context(pair.cert, pair.key))
        async with server:
            assert await presented(port, pair, "localhost") == before
            write_pair(tmp_path, ["localhost"])
            assert pair.ca.read_bytes() == ca
            assert await presented(port, pair, "localhost") == serial(pair) != before

    asyncio.run(scene())


def test_a_client_that_names_no_host_gets_the_renewed_one_too(tmp_path: Path):
    """Clients that call an address send no server name; renewal reaches them all the same."""

    async def scene() -> None:
        pair = write_pair(tmp_path, ["127.0.0.1"])
        server, port = await serve(server_context(pair.cert, pair.key))
        async with server:
            write_pair(tmp_path, ["127.0.0.1"])
            assert await presented(port, pair, "127.0.0.1") == serial(pair)

    asyncio.run(scene())


def test_halfway_through_a_renewal_the_last_good_pair_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """A certificate that does not fit its key, or is missing, changes nothing until all is there."""

    async def scene() -> None:
        pair = write_pair(tmp_path, ["localhost"])
        before, old_key = serial(pair), pair.key.read_bytes()
        server, port = await serve(server_context(pair.cert, pair.key))
        async with server:
            write_pair(tmp_path, ["localhost"])
            new_key = pair.key.read_bytes()
            pair.key.write_bytes(old_key)
            assert await presented(port, pair, "localhost") == before
            pair.key.unlink()
            assert await presented(port, pair, "localhost") == before
            pair.key.write_bytes(new_key)
            assert await presented(port, pair, "localhost") == serial(pair)

    asyncio.run(scene())
    assert "the last stays" in caplog.text


def test_a_ca_that_ends_too_soon_is_replaced(tmp_path: Path):
    """A certificate never outlives the CA that signed it."""
    pair = write_pair(tmp_path, ["localhost"])
    ca = pair.ca.read_bytes()
    write_pair(tmp_path, ["localhost"], days=3000)
    assert pair.ca.read_bytes() == ca
    write_pair(tmp_path, ["localhost"], days=3651)
    assert pair.ca.read_bytes() != ca


@pytest.mark.parametrize("junk", [b"", b"no key"])
def test_a_spoilt_ca_is_replaced(tmp_path: Path, junk: bytes):
    """A CA whose key cannot be read is of no use and made anew."""
    pair = write_pair(tmp_path, ["localhost"])
    ca = pair.ca.read_bytes()
    (tmp_path / "ca.key").write_bytes(junk)
    write_pair(tmp_path, ["localhost"])
    assert pair.ca.read_bytes() != ca


def test_files_that_are_no_pair_are_refused_at_the_start(tmp_path: Path):
    """A server with nothing to present does not start."""
    with pytest.raises(FileNotFoundError):
        server_context(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a").write_text("junk")
    with pytest.raises(ssl.SSLError):
        server_context(tmp_path / "a", tmp_path / "a")


def test_a_certificate_needs_a_name(tmp_path: Path):
    """No names is a mistake of the caller's."""
    with pytest.raises(ValueError, match="at least one"):
        write_pair(tmp_path, [])


def test_a_new_ca_of_clients_is_believed_at_once(tmp_path: Path):
    """Its file is looked at in every handshake, as the certificate's are; who is of neither CA is refused."""

    async def scene() -> None:
        pair, mine, other = (
            write_pair(tmp_path / name, ["localhost"]) for name in ("server", "mine", "other")
        )
        peers = tmp_path / "peers.crt"
        peers.write_bytes(mine.ca.read_bytes())
        shown: list[bool] = []

        def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            shown.append(bool(writer.get_extra_info("peercert")))
            writer.write(b"x")
            writer.close()

        context = server_context(pair.cert, pair.key, peers)
        server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=context)

        async def calls(client: CertificatePair) -> bool:
            trust = ssl.create_default_context(cafile=str(pair.ca))
            trust.load_cert_chain(client.cert, client.key)
            port = server.sockets[0].getsockname()[1]
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=trust, server_hostname="localhost"
                )
                taken = await reader.read(1) == b"x"
            except OSError:
                return False
            writer.close()
            return taken

        async with server:
            assert [await calls(one) for one in (mine, other)] == [True, False]
            peers.write_bytes(mine.ca.read_bytes() + other.ca.read_bytes())
            assert [await calls(one) for one in (mine, other)] == [True, True]
            peers.write_bytes(other.ca.read_bytes())
            assert [await calls(one) for one in (mine, other)] == [False, True]
        assert all(shown)

    asyncio.run(scene())
