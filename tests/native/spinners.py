"""A process that launches kernels of given lengths, one after the other, as fast as a program in C can."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.native.shells import program
from tests.native.tenants import Tenant
from tests.native.test_core_limit import SPIN_PTX


class Spinner:
    """Of a tenant, started by the command `prefix` if given.

    What it is told it does in order; it answers when it has submitted.
    """

    def __init__(self, tenant: Tenant, *prefix: str) -> None:
        self.process = subprocess.Popen(
            [*prefix, program("spinner"), SPIN_PTX],
            env=tenant.env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """As the card's record has it."""
        return self.process.pid

    def tell(self, *lines: str) -> None:
        """Without waiting for an answer."""
        assert self.process.stdin is not None
        self.process.stdin.writelines(f"{line}\n" for line in lines)
        self.process.stdin.flush()

    def hear(self, count: int = 1) -> None:
        """Waits until so many lines have been obeyed."""
        assert self.process.stdout is not None
        for _ in range(count):
            assert self.process.stdout.readline() == "done\n"

    def do(self, *lines: str) -> None:
        """Tells it and waits."""
        self.tell(*lines)
        self.hear(len(lines))


@contextmanager
def spinning(tenant: Tenant, *prefix: str) -> Iterator[Spinner]:
    """A spinner that ends with the context."""
    spinner = Spinner(tenant, *prefix)
    try:
        yield spinner
    finally:
        spinner.process.kill()
        spinner.process.communicate()
