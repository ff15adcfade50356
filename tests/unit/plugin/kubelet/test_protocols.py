"""The kubelet's protocols: our generated code, and whether both ends read them alike."""

from pathlib import Path
from typing import Any

import pytest

from aliquot.plugin.pb.deviceplugin.v1beta1 import api_pb2 as plugin_dp
from aliquot.plugin.pb.podresources.v1 import api_pb2 as plugin_pr
from aliquot.plugin.proto.generate import TARGET, generate
from aliquot.sandbox.cluster.pb.deviceplugin.v1beta1 import api_pb2 as sandbox_dp
from aliquot.sandbox.cluster.pb.podresources.v1 import api_pb2 as sandbox_pr


def test_the_generated_code_is_that_of_the_sources(tmp_path: Path):
    """Generate again and compare."""
    for path in generate(tmp_path):
        assert path.read_text() == (TARGET / path.relative_to(tmp_path)).read_text()


@pytest.mark.parametrize(("ours", "theirs"), [(plugin_dp, sandbox_dp), (plugin_pr, sandbox_pr)])
def test_plugin_and_sandbox_mean_the_same_on_the_wire(ours: Any, theirs: Any):
    """Two people wrote them from the same facts; names, numbers and types agree."""
    assert described(ours) == described(theirs)


def described(module: Any) -> dict[str, Any]:
    """Messages with their fields, and services with their methods."""
    descriptor = module.DESCRIPTOR
    messages = {
        name: {
            (field.name, field.number, field.type, field.message_type and field.message_type.full_name)
            for field in message.fields
        }
        for name, message in descriptor.message_types_by_name.items()
    }
    services = {
        service.full_name: {
            (method.name, method.input_type.full_name, method.output_type.full_name, method.server_streaming)
            for method in service.methods
        }
        for service in descriptor.services_by_name.values()
    }
    return {"package": descriptor.package, **messages, **services}
