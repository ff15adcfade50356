"""Replays of traces, and the command that shows them."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from aliquot.cli.command_group import aliquot
from aliquot.request.placement_policy import DEFAULT, Policy, Preference
from aliquot.scheduler_ext.replay.run import Cluster, InProcess, churn, inflated, named, quiet, replay
from aliquot.scheduler_ext.replay.study import Study
from aliquot.scheduler_ext.replay.trace import TraceError, TraceNode, TracePod, read_nodes, read_pods
from tests.unit.scheduler_ext.traces import write_nodes, write_pods


@pytest.fixture(name="files")
def make_files(tmp_path: Path) -> tuple[Path, Path]:
    """A synthetic trace."""
    return write_nodes(tmp_path / "nodes.csv"), write_pods(tmp_path / "pods.csv")


class Watched:
    """A site that books itself what every card and node carries, and refuses what cannot be."""

    def __init__(self, nodes: dict[str, TraceNode]) -> None:
        self.nodes = nodes
        self.inner = InProcess(nodes, DEFAULT)
        self.cards: dict[str, int] = {}
        self.cpu: dict[str, int] = {}
        self.pods: dict[str, tuple[TracePod, str, tuple[str, ...]]] = {}

    def place(self, uid: str, pod: TracePod, names: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
        """Place, and check."""
        found = self.inner.place(uid, pod, names)
        if found is None:
            assert not any(self._room(name, pod) for name in names)
            return None
        name, cards = found
        assert name in names
        assert len(set(cards)) == len(cards) == pod.cards
        assert not pod.models or self.nodes[name].model.lower() in pod.models
        self._book(pod, name, cards, 1)
        self.pods[uid] = (pod, name, cards)
        return found

    def leave(self, uid: str) -> None:
        """A pod goes."""
        self.inner.leave(uid)
        self._book(*self.pods.pop(uid), -1)

    def _book(self, pod: TracePod, name: str, cards: tuple[str, ...], sign: int) -> None:
        self.cpu[name] = self.cpu.get(name, 0) + sign * pod.host.cpu_milli
        assert 0 <= self.cpu[name] <= self.nodes[name].host.cpu_milli
        for card in cards:
            self.cards[card] = self.cards.get(card, 0) + sign * pod.milli
            assert 0 <= self.cards[card] <= 1000

    def _room(self, name: str, pod: TracePod) -> bool:
        node = self.nodes[name]
        if pod.models and node.model.lower() not in pod.models:
            return False
        free = [1000 - self.cards.get(f"GPU-{name}-{n}", 0) for n in range(node.cards)]
        return sum(left >= pod.milli for left in free) >= pod.cards

    def allocated(self) -> int:
        """Thousandths of cards in all."""
        return sum(self.cards.values())


@pytest.mark.parametrize("sample", [100, 10])
def test_whoever_has_room_somewhere_is_placed_and_nothing_twice(files: tuple[Path, Path], sample: int):
    """Cards, CPU and models hold at every step; only pods without room on any node offered are refused."""
    dice = random.Random(1)
    nodes = named(read_nodes(files[0]), dice)
    cluster, site = Cluster(nodes, sample), Watched(nodes)
    found = replay(
        cluster, site, inflated(read_pods(files[1]), 1.3 * cluster.capacity, dice), (90, 100), quiet
    )
    assert site.allocated() == cluster.allocated == sum(pod.size for _, pod in cluster.placed.values())
    assert set(found) == {90, 100}
    assert 70 < found[90] <= found[100] <= 100


def test_pods_that_leave_give_all_back(files: tuple[Path, Path]):
    """What is booked is what those have who are still there."""
    dice = random.Random(2)
    nodes = named(read_nodes(files[0]), dice)
    cluster, site = Cluster(nodes), Watched(nodes)
    found = churn(cluster, site, read_pods(files[1]), 0.9, dice, heard=quiet, arrivals=1500, warm_up=500)
    assert site.allocated() == cluster.allocated == sum(pod.size for _, pod in cluster.placed.values())
    assert len(cluster.placed) < 700
    assert 60 < found.allocated < 100
    assert 80 < found.accepted <= 100


def test_the_default_leaves_less_than_packing_and_spreading(files: tuple[Path, Path]):
    """On the synthetic trace, mean of three seeds."""
    nodes, pods = read_nodes(files[0]), read_pods(files[1])

    def mean(policy: Policy) -> float:
        study = Study(nodes, pods, Preference(policy, policy))
        return sum(study.run(seed)["100"] for seed in (1, 2, 3)) / 3

    assert mean(Policy.FRAG_AWARE) > mean(Policy.BINPACK) + 1
    assert mean(Policy.BINPACK) > mean(Policy.SPREAD) + 1


def test_a_seed_says_all(files: tuple[Path, Path]):
    """Equal seeds, equal figures; another seed, others."""
    study = Study(read_nodes(files[0]), read_pods(files[1]), DEFAULT)
    assert study.run(1) == study.run(1)
    assert study.run(1) != study.run(2)


BAD = {
    "no such column": ("sn,cpu_milli\nn,1\n", "nodes.csv:2: memory_mib: missing"),
    "a word for a number": ("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,many,T4\n", "gpu: 'many' is no whole number"),
    "too many cards": ("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,17,T4\n", "gpu: '17' is no whole number from 0 to 16"),
    "no card at all": ("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,T4\n", "no node has a card"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "complaint"), BAD.values(), ids=BAD.keys())
def test_what_is_no_trace_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str):
    """File, line and column."""
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as refusal:
        read_nodes(path)
    assert complaint in str(refusal.value)


def command(files: tuple[Path, Path], *more: str) -> tuple[int, str, str]:
    """Run `aliquot simulate`: exit status, output and errors."""
    options = ["simulate", "--nodes", str(files[0]), "--pods", str(files[1]), *more]
    result = CliRunner().invoke(aliquot, options)
    return result.exit_code, result.stdout, result.stderr


def test_the_command_prints_json(files: tuple[Path, Path]):
    """In the form that programs read."""
    status, out, _ = command(files, "--policy", "binpack", "--seeds", "2", "--load", "1.1", "--json")
    answer = json.loads(out)
    assert (status, answer["seeds"], answer["policy"]) == (0, 2, "Binpack")
    assert list(answer["at"]) == ["90", "95", "100", "110"]
    assert all(set(figure) == {"mean", "sd"} for figure in answer["at"].values())


def test_the_command_says_what_is_wrong(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch):
    """A trace that is none, and a plot without matplotlib, which is told before the work."""
    status, _, errors = command((files[1], files[0]))
    assert status
    assert "missing" in errors
    monkeypatch.setattr("aliquot.cli.commands.replay.find_spec", lambda _: None)
    status, _, errors = command(files, "--plot", "x.png")
    assert status
    assert "pip install 'aliquot[plot]'" in errors
