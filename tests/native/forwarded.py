"""A directory of libraries as a container with forwarders has them, found by the loader's search path."""

import shutil
from pathlib import Path

from aliquot.libshim.library import forwarder_path, library_path

SONAMES = ("libcuda.so.1", "libnvidia-ml.so.1")


def behind(soname: str) -> str:
    """The name under which a forwarder looks for the driver's own file."""
    return soname.replace(".so", "-real.so")


def forwarded(root: Path, driver: Path) -> Path:
    """Makes a directory of forwarders, the interceptor, and the libraries of `driver` behind them."""
    root.mkdir(parents=True)
    shutil.copy(library_path(), root)
    for soname in SONAMES:
        shutil.copy(forwarder_path(soname), root)
        (root / behind(soname)).symlink_to(driver / soname)
    return root
