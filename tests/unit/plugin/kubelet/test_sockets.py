"""The files of the agent's sockets in the kubelet's directory."""

from aliquot.api.resource_domain import LONGEST
from aliquot.plugin.kubelet.registration import socket_name


def test_sockets_of_two_domains_are_two_files():
    """An agent serves both while pods of the domain before run; the path stays short enough for a socket."""
    assert socket_name("aliquot.dev/gpu") == "aliquot-gpu.sock"
    chosen = {socket_name(f"{domain}/gpu") for domain in ("a.example.com", "b.example.com", "aliquot.dev")}
    assert len(chosen) == 3
    longest = socket_name(f"{'a' * (LONGEST - 4)}.com/mig-1c.3g.20gb.me.all")
    assert len(f"/var/snap/microk8s/common/var/lib/kubelet/device-plugins/{longest}") <= 107
