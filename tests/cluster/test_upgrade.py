"""A newer Aliquot comes, and goes again, while pods with slices run."""

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.cluster.auditor import audit
from tests.cluster.conftest import NEWER
from tests.cluster.helm import CHART
from tests.cluster.images import VERSION
from tests.cluster.installation import NAMESPACE, Installation
from tests.cluster.traffic import Steady, Traffic

pytestmark = pytest.mark.cluster

LIBRARIES = "/var/lib/aliquot/lib"
GIB = 1 << 30
TOP = ("aliquot", "top", "--json", "--interval", "5")


@pytest.fixture
def newer(installed: Installation, newer_image: Future[Path], tmp_path: Path) -> Path:
    """The chart of another version, whose images the node has."""
    installed.node.runtime.load([newer_image.result()])
    chart = tmp_path / "aliquot"
    shutil.copytree(CHART, chart)
    description = chart / "Chart.yaml"
    description.write_text(description.read_text().replace(VERSION, NEWER))
    return chart


def begin(installed: Installation, *names: str) -> list[Steady]:
    """Pods that compute, with the interceptor of the version that is installed."""
    pods = [Steady(installed, name) for name in names]
    for pod in pods:
        pod.begin()
    return pods


def versions(installed: Installation) -> set[str]:
    """Which versions of Aliquot's images its pods have."""
    images = [
        container["image"]
        for pod in installed.kubectl.list("pods", NAMESPACE)
        for container in pod["spec"]["containers"]
    ]
    return {image.rpartition(":")[2] for image in images if "aliquot/" in image}


def libraries(installed: Installation) -> dict[Path, tuple[int, bytes]]:
    """The node's copies of the interceptor: inode and content."""
    found = installed.node.box.path(LIBRARIES).glob("*/libaliquot.so")
    return {path: (path.stat().st_ino, path.read_bytes()) for path in found}


def roll(installed: Installation, pods: Sequence[Steady], version: str) -> None:
    """Return when all of Aliquot is of a version; pods come and go meanwhile, and those that stay are looked at."""
    traffic = Traffic(installed, f"on-the-way-to-{version}")
    while versions(installed) != {version}:
        traffic.turn()
        for pod in pods:
            pod.check()
        audit(installed)
    installed.await_services()
    traffic.turn()
    traffic.finish()
    print(f"to {version}: guests {dict(traffic.seen)}")
    for pod in pods:
        pod.check_time()
        pod.check()


def check_top(installed: Installation, pods: Sequence[Steady]) -> None:
    """Assert that what is installed now reads the pages of all these pods, whichever version made them."""
    agent = str(installed.pid_of("aliquot-plugin"))
    text = installed.node.box.run("nsenter", "--target", agent, "--mount", "--", *TOP)
    tenants = {t["tenant"]: t for card in json.loads(text)["cards"] for t in card["tenants"]}
    for pod in pods:
        (shown,) = [tenant for name, tenant in tenants.items() if pod.uid in name or pod.name in name]
        assert shown["usedBytes"] >= GIB, shown
        assert shown["used"] > 0, shown
        assert shown["trusted"], (shown, installed.kubectl.events(pod.name))


def test_it_is_upgraded_and_rolled_back_under_running_pods(installed: Installation, newer: Path):
    """No container ends or has a moment without its limits; each keeps the interceptor that it started with."""
    steady = begin(installed, *(f"steady-{number}" for number in range(5)))
    before = libraries(installed)
    installed.release.upgrade(chart=newer)
    roll(installed, steady, NEWER)
    later = begin(installed, "later-0", "later-1")
    both = libraries(installed)
    assert {pod.interceptor for pod in steady} == {f"aliquot {VERSION}"}
    assert {pod.interceptor for pod in later} == {f"aliquot {NEWER}"}
    assert both.items() > before.items()
    check_top(installed, [*steady, *later])
    installed.release.helm("rollback", "aliquot")
    roll(installed, [*steady, *later], VERSION)
    check_top(installed, [*steady, *later])
    assert begin(installed, "last")[0].interceptor == f"aliquot {VERSION}"
    assert libraries(installed) == both
