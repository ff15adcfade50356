"""Both driver branches, each with what the processes of all flavours need."""

import ctypes
import os

import pytest

from tests.driver.drivers import BRANCHES, Driver, fetch
from tests.driver.flavours import FLAVOURS, Ground
from tests.tools.debian import NotAvailableError

PR_CAPBSET_DROP, CAP_MKNOD = 24, 27


@pytest.fixture(scope="session", autouse=True)
def no_device_nodes() -> None:
    """Has NVIDIA's libraries make no /dev/nvidiactl, as root may: others would take it for a driver.

    What this process starts from now on cannot get the right back.
    """
    if not os.geteuid():
        assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_MKNOD, 0, 0, 0) == 0


@pytest.fixture(scope="session", params=BRANCHES)
def driver(request: pytest.FixtureRequest) -> Driver:
    """NVIDIA's libraries of a branch; without them nothing here can be said."""
    try:
        return fetch(request.param)
    except NotAvailableError as missing:
        pytest.skip(f"NOT RUN: {missing}")


@pytest.fixture(scope="session")
def ground(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """The branch, forwarders before it, and a slice's pages."""
    return Ground.prepare(driver, tmp_path_factory.mktemp(f"driver-{driver.branch}"))


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    """How the interceptor gets between the program and the driver."""
    return str(request.param)
