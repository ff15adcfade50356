"""Native artefacts that pyproject.toml alone cannot name: the interceptor, and what is built through cffi."""

import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

BUILT = Path("libshim/build")
CFFI = ("libshim/_pages_build.py", "arbiter/_arbiter_build.py", "scheduler_ext/laying/_laying_build.py")
FORWARDERS = ("libcuda.so.1", "libnvidia-ml.so.1")
INTERCEPTOR = Extension("libshim.libaliquot", sources=["libshim/src/loader.c"])


class BuildInterceptor(build_ext):
    """Builds libaliquot.so with its own Makefile: a plain shared object, no Python symbols, no ABI suffix."""

    def get_ext_filename(self, ext_name: str) -> str:
        """The interceptor keeps its plain name; the cffi reader gets the usual one."""
        if ext_name.rpartition(".")[2] == "libaliquot":
            return str(Path(*ext_name.split(".")).with_suffix(".so"))
        return str(super().get_ext_filename(ext_name))

    def build_extension(self, ext: Extension) -> None:
        """Hands the interceptor to make and everything else to setuptools."""
        if ext.name != INTERCEPTOR.name:
            super().build_extension(ext)
            return
        subprocess.run(["make", "--silent", "--no-print-directory", "-C", "libshim"], check=True)
        target = Path(self.get_ext_fullpath(ext.name))
        install(BUILT / target.name, target)
        install_forwarders(target.parent)

    def copy_extensions_to_source(self) -> None:
        """What is not an extension module is not copied for us."""
        super().copy_extensions_to_source()
        install_forwarders(Path("libshim"))


def install_forwarders(package: Path) -> None:
    """Puts the forwarders where the package has them."""
    for name in FORWARDERS:
        install(BUILT / "forwarder" / name, package / "forwarder" / name)


def install(built: Path, target: Path) -> None:
    """Copies a library to where the package has it. Programs that have the old one mapped keep it whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    shutil.copyfile(built, temporary)
    temporary.replace(target)


setup(
    ext_modules=[INTERCEPTOR],
    cffi_modules=[f"{script}:ffibuilder" for script in CFFI],
    cmdclass={"build_ext": BuildInterceptor},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
