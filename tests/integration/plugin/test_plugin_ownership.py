"""What a tenant's page says of others' processes holds nothing of the node."""

from aliquot.libshim.control_page import read_control
from tests.integration.plugin.small_kubelet import until
from tests.integration.plugin.test_plugin_watchdog import spinning
from tests.integration.plugin.world import MakeWorld, occupy


def test_a_page_that_names_a_process_of_the_host_keeps_no_slice(make_world: MakeWorld) -> None:
    """It lives on when the pod is deleted, and is in no pod's cgroup, as all processes here."""
    node = make_world(flags=["--pod-cgroups"])
    first, second = node.admit("leaves", 12288, 10), node.admit("comes", 12288, 10)
    node.kubelet.pre_start(first)
    with spinning(node) as process:
        occupy(node.usage(first.nonce), process, 0)
        node.delete("leaves")
        node.kubelet.forget(first.uid)
        node.kubelet.pre_start(second)
        assert process.poll() is None
    assert read_control(node.control(second.nonce)).cards[0].memory_bytes == 12288 << 20
    until(lambda: not (node.root / "run" / "tenants" / first.uid).exists(), "given back")
