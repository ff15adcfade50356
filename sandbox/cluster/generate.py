"""`python -m aliquot.sandbox.cluster.generate [DIRECTORY]`: make the gRPC code of `pb/` from the files in `proto/`.

One process may hold two copies of these protocols (a test that talks to the node agent and to the kubelet),
but one descriptor pool can hold a message's name only once. So the generated modules use the pool of
`aliquot.sandbox.cluster.pb` in place of the process-wide one.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = "aliquot/sandbox/cluster/pb"
PROTOCOLS = ("deviceplugin/v1beta1", "podresources/v1")


def generate(output: Path) -> None:
    """Write the modules of all protocols under `output`/aliquot/sandbox/cluster/pb; needs grpcio-tools."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    for protocol in PROTOCOLS:
        arguments = [
            "protoc",
            f"-I{PACKAGE}={HERE / 'proto'}",
            f"-I{files('grpc_tools') / '_proto'}",
            f"--python_out={output}",
            f"--grpc_python_out={output}",
            f"{PACKAGE}/{protocol}/api.proto",
        ]
        if protoc.main(arguments) != 0:
            raise SystemExit(f"protoc failed on {protocol}")
        _use_own_pool(output / PACKAGE / protocol / "api_pb2.py")


def _use_own_pool(module: Path) -> None:
    text = module.read_text()
    text = text.replace("from google.protobuf import descriptor_pool as _descriptor_pool\n", "")
    text = text.replace("_descriptor_pool.Default()", "_POOL")
    text = text.replace(
        "# @@protoc_insertion_point(imports)", "from aliquot.sandbox.cluster.pb import POOL as _POOL", 1
    )
    module.write_text(text)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[2])
