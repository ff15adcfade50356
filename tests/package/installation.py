"""An installation of the wheel: outside of the checkout, on a system without a compiler."""

import os
import subprocess
import sys
from pathlib import Path

REACH = ("PIP_", "SSL_", "REQUESTS_CA", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY")
"""What pip needs to reach its index."""


class Installation:
    """A virtual environment, a home and a search path of its own, below a directory that is no checkout."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = directory / "environment"
        self.python = self.environment / "bin" / "python"
        (directory / "bin").mkdir(parents=True)
        (directory / "home").mkdir()
        subprocess.run([sys.executable, "-m", "venv", self.environment], check=True)

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        (found,) = self.environment.glob("lib/python*/site-packages")
        return found

    def install(self, *requirements: str) -> None:
        """Has pip install binary packages only, for nothing could be compiled."""
        reach = {name: value for name, value in os.environ.items() if name.startswith(REACH)}
        pip = [self.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        command = [*pip, "--only-binary", ":all:", *requirements]
        variables = {**self.variables, **reach}
        done = subprocess.run(
            command, cwd=self.directory, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    @property
    def variables(self) -> dict[str, str]:
        """All that a program finds in its environment: no compiler, and nothing of the checkout."""
        return {
            "HOME": str(self.directory / "home"),
            "PATH": str(self.directory / "bin"),
            "XDG_RUNTIME_DIR": str(self.directory / "home"),
            "LANG": "C.UTF-8",
        }

    def command(self, *words: str | Path) -> list[str]:
        """A command line of `aliquot`."""
        return [str(self.environment / "bin" / "aliquot"), *map(str, words)]

    def aliquot(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs `aliquot` to its end."""
        return subprocess.run(
            self.command(*words),
            cwd=self.directory,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
