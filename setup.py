"""Native artefacts that pyproject.toml alone cannot name: interceptor, simulated driver, what is built through cffi.

A wheel of the same sources by the same compiler is the same wherever it is built, where SOURCE_DATE_EPOCH says of when
its files are: debug information names no directory of the builder's, and modes follow no umask. `make wheel` builds for
every glibc since 2.17.
"""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CFFI = ("libshim/_pages_build.py", "arbiter/_arbiter_build.py", "scheduler_ext/scoring/_scoring_build.py")
FORWARDERS = ("libcuda.so.1", "libnvidia-ml.so.1")
SIMULATED = (*FORWARDERS, "libjudge.so")
ANYWHERE = f"-ffile-prefix-map={Path.cwd()}=."
INTERCEPTOR = Extension("aliquot.libshim.libaliquot", sources=["libshim/src/loader.c"])


class BuildNative(build_ext):
    """Builds libaliquot.so and the simulated driver with their own Makefiles: plain shared objects, no ABI suffix."""

    in_checkout = False
    """Whether what is built stays in the checkout: setuptools forgets it while it builds."""

    def run(self) -> None:
        """Builds everything."""
        self.in_checkout = bool(self.inplace or self.editable_mode)
        super().run()

    def get_ext_filename(self, ext_name: str) -> str:
        """The interceptor keeps its plain name; the cffi reader gets the usual one."""
        if ext_name.rpartition(".")[2] == "libaliquot":
            return str(Path(*ext_name.split(".")).with_suffix(".so"))
        return str(super().get_ext_filename(ext_name))

    def build_extension(self, ext: Extension) -> None:
        """Hands the interceptor to make and everything else to setuptools."""
        if ext.name != INTERCEPTOR.name:
            ext.extra_compile_args = [*ext.extra_compile_args, ANYWHERE]
            super().build_extension(ext)
            return
        built = self.make("libshim")
        target = Path(self.get_ext_fullpath(ext.name))
        install(built / target.name, target)
        install_all(FORWARDERS, built / "forwarder", target.parent / "forwarder")
        if not self.in_checkout:  # which builds its own simulated driver when it is used
            driver = Path(self.build_lib) / "aliquot/sandbox/driver/build"
            install_all(SIMULATED, self.make("sandbox/driver"), driver)

    def copy_extensions_to_source(self) -> None:
        """What is not an extension module is not copied for us."""
        super().copy_extensions_to_source()
        install_all(FORWARDERS, self.make("libshim") / "forwarder", Path("libshim/forwarder"))

    def make(self, folder: str) -> Path:
        """Builds a folder; returns where its libraries are. A wheel shares no objects with the checkout.

        In the checkout they have the names by which `make` in that folder knows them, and what they depend on.
        """
        build = Path(folder, "build") if self.in_checkout else Path(self.build_temp, folder)
        name = "build" if self.in_checkout else build.absolute()
        make = ["make", "--silent", "--no-print-directory", "-C", folder, f"BUILD={name}"]
        subprocess.run([*make, f"CPPFLAGS={ANYWHERE}"], check=True)
        return build


def install_all(names: tuple[str, ...], built: Path, target: Path) -> None:
    """Copies libraries by their names."""
    for name in names:
        install(built / name, target / name)


def install(built: Path, target: Path) -> None:
    """Copies a library to where the package has it. Programs that have the old one mapped keep it whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    shutil.copyfile(built, temporary)
    temporary.replace(target)


os.umask(0o022)
setup(
    scripts=["aliquot/cli/bin/aliquot"],
    ext_modules=[INTERCEPTOR],
    cffi_modules=[f"{script}:ffibuilder" for script in CFFI],
    cmdclass={"build_ext": BuildNative},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
