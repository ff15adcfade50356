"""Where the interceptor and its forwarders lie."""

from pathlib import Path


def forwarder_path(soname: str, library: Path | None = None) -> Path:
    """Where the forwarder for `libcuda.so.1` or `libnvidia-ml.so.1` lies that goes with an interceptor."""
    return (library or library_path()).parent / "forwarder" / soname


def library_path() -> Path:
    """Returns where the interceptor lies."""
    return Path(__file__).resolve().parent / "libaliquot.so"
