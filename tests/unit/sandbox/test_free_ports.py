"""Ports of programs that are yet to start: nobody else has one meanwhile."""

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from aliquot.sandbox.cluster.processes import PORTS, free_port

COUNT = 300
TAKER = f"""
from aliquot.sandbox.cluster.processes import free_port
print(*[free_port() for _ in range({COUNT})])
"""


def test_no_two_processes_are_given_the_same_port():
    """Though neither listens yet."""
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", TAKER],
            env={"PYTHONPATH": str(Path.cwd())},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    ports = [port for taker in takers for port in taker.communicate()[0].split()]
    assert len(set(ports)) == len(ports) == 2 * COUNT


def test_the_kernel_gives_none_of_them_to_somebody_who_connects():
    """It takes its own from a range of its own."""
    lowest, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert free_port() < lowest


def test_a_port_that_somebody_listens_on_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """When its turn has come."""
    with socket.create_server(("127.0.0.1", free_port())) as busy:
        port = busy.getsockname()[1]
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        free_port()
        (turns,) = tmp_path.iterdir()
        turns.write_text(str(PORTS.index(port)))
        assert free_port() != port
