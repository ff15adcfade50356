"""Generates `plugin/pb` from the `.proto` files beside it: `python plugin/proto/generate.py [TARGET]`.

Two lines of protoc's output are changed. Each file gets a descriptor pool of its own, so that another
program's copy of the same kubelet protocol can be imported in the same process; and imports name our
package.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "pb"
DEFAULT_POOL = "_descriptor_pool.Default()"
OWN_POOL = "_descriptor_pool.DescriptorPool()"


def generate(target: Path) -> list[Path]:
    """Writes the Python code of every `.proto` file under `target`; returns the files written."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    sources = sorted(HERE.rglob("*.proto"))
    status = protoc.main(
        ["protoc", f"-I{HERE}", f"--python_out={target}", f"--grpc_python_out={target}", *map(str, sources)],
    )
    if status:
        raise SystemExit(status)
    return [rewrite(path) for source in sources for path in generated(source, target)]


def generated(source: Path, target: Path) -> list[Path]:
    """The two files protoc writes for one source."""
    folder = target / source.relative_to(HERE).parent
    return [folder / f"{source.stem}_pb2.py", folder / f"{source.stem}_pb2_grpc.py"]


def rewrite(path: Path) -> Path:
    """Gives the file its own descriptor pool and the full name of its sibling."""
    package = ".".join(path.relative_to(path.parents[2]).parent.parts)
    text = path.read_text().replace(DEFAULT_POOL, OWN_POOL)
    path.write_text(text.replace(f"from {package} import", f"from aliquot.plugin.pb.{package} import"))
    return path


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if sys.argv[1:] else TARGET)
