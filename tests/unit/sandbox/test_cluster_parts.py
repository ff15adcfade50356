"""Small parts of the pocket cluster by themselves: quantities, patches, paths, generated code, configuration."""

from __future__ import annotations

import filecmp
from pathlib import Path

import pytest

from aliquot.sandbox.cluster import generate
from aliquot.sandbox.cluster.apiserver import patch, quantity
from aliquot.sandbox.cluster.kubelet.environment import expand
from aliquot.sandbox.cluster.kubelet.launch import PathRewriter
from aliquot.sandbox.cluster.scheduler.config import SchedulerConfig, seconds

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("8192Mi", "8Gi"),
        ("1.5Gi", "1536Mi"),
        ("4096", "4096"),
        ("1000", "1k"),
        ("0.5", "500m"),
        ("1e3", "1e3"),
        ("0.1m", "100u"),
        ("-1", "-1"),
        ("0.5Ki", "512"),
        (4, "4"),
        (4.5, "4500m"),
    ],
)
def test_quantities_are_stored_in_canonical_form(given: object, stored: str) -> None:
    """As apimachinery's Quantity prints what it has read."""
    assert quantity.canonical(given) == stored
    assert quantity.parse(given) == quantity.parse(stored)


@pytest.mark.parametrize("given", ["", "x", "1e9Ei", "1 Gi", "--1", "1gi", True, None])
def test_what_is_no_quantity(given: object) -> None:
    """Anything else is refused."""
    with pytest.raises(quantity.QuantityError):
        quantity.canonical(given)


def test_strategic_merge() -> None:
    """Lists of maps merge by their key, other lists are replaced, null and $patch delete."""
    pod = {
        "spec": {
            "containers": [{"name": "a", "args": ["1"], "env": [{"name": "X", "value": "1"}]}, {"name": "b"}],
            "tolerations": [{"key": "k"}],
        }
    }
    change = {
        "spec": {
            "containers": [
                {"name": "a", "args": ["2"], "env": [{"name": "Y", "value": "2"}]},
                {"name": "b", "$patch": "delete"},
            ],
            "tolerations": None,
        }
    }
    merged = patch.strategic_merge(pod, change)
    env = [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]
    assert merged == {"spec": {"containers": [{"name": "a", "args": ["2"], "env": env}]}}
    assert pod["spec"]["containers"][0]["args"] == ["1"]


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/run/x", "/host/x"),
        ("a:/run/x:/run/x/y", "a:/host/x:/host/x/y"),
        ("/run/xy /run/x.z /a/run/x", "/run/xy /run/x.z /a/run/x"),
        ("open('/run/x')", "open('/host/x')"),
        ("/run/x/deep", "/deep/one"),
        ("/run/x/deeper", "/host/x/deeper"),
    ],
)
def test_paths_are_rewritten_at_their_boundaries(text: str, rewritten: str) -> None:
    """A container path is replaced where it ends a path or one of its parts, the longest first."""
    assert PathRewriter({"/run/x": "/host/x", "/run/x/deep": "/deep/one"})(text) == rewritten


def test_environment_expansion() -> None:
    """Known names are replaced, unknown ones stay, doubled dollars are one."""
    assert expand("$(A) $(B) $$(A) $A", {"A": "1"}) == "1 $(B) $(A) $A"


@pytest.mark.parametrize(("text", "value"), [("5s", 5.0), ("500ms", 0.5), ("1m30s", 90.0), ("1.5h", 5400.0)])
def test_durations(text: str, value: float) -> None:
    """Go durations are read."""
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "5d"])
def test_what_is_no_duration(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match="not a duration"):
        seconds(text)


def test_the_deployed_scheduler_configuration_is_read() -> None:
    """The stand-in takes the file that a real kube-scheduler takes."""
    config = SchedulerConfig.read(ROOT / "deploy/scheduler/configuration.yaml")
    assert config.profiles == {"aliquot-scheduler"}
    (extender,) = config.extenders
    assert extender.managed["aliquot.dev/gpu"] is True
    assert extender.managed["aliquot.dev/gpu-mem"] is True
    assert (extender.filter_verb, extender.bind_verb, extender.names_only) == ("filter", "bind", True)


def test_generated_code_is_up_to_date(tmp_path: Path) -> None:
    """Generating the protocols again gives the committed files, byte for byte."""
    generate.generate(tmp_path)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.py"))
    assert len(made) == 4
    for path in made:
        assert filecmp.cmp(tmp_path / path, ROOT / path, shallow=False), path
