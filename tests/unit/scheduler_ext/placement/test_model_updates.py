"""Learning between the calls, and looking at all nodes where nearly all are offered: no answer differs for it."""

import asyncio
import random
from collections.abc import Iterator, Sequence

import pytest

from aliquot.request.pod_request import PodRequest, SliceRequest
from aliquot.scheduler_ext.handlers.filter import Filter
from aliquot.scheduler_ext.placement import placer as placer_module
from aliquot.scheduler_ext.placement import workload_model
from aliquot.scheduler_ext.placement.cluster_fragmentation import ClusterFragmentation
from aliquot.scheduler_ext.placement.model_updates import ModelUpdater, Quiet
from aliquot.scheduler_ext.placement.placer import Choice, Placer
from aliquot.scheduler_ext.state.foreign_plugins import ForeignPlugins
from aliquot.scheduler_ext.state.ledger import Ledger
from tests.unit.scheduler_ext.clusters import pod_document, read
from tests.unit.scheduler_ext.placing import card, node, part, pod, unburdened, whole

OLD = (part(3), part(8, cores=30), part(6, cores=10, cards=2), whole(1))
NEW = (part(percent=20, cores=20), part(5), whole(2), part(11))
PATIENT_S = 20.0
LOOKS = 4
"""Steps in which pods, thresholds, prices and CPU are looked at, and no node."""


class Plain(Placer):
    """Looks up the row of every node that is offered, however many are."""

    def _offered_nearly_all(self, _: Sequence[str], /) -> bool:
        return False


def cluster(dice: random.Random, nodes: int = 300) -> Ledger:
    """More nodes than are worked on at once, with up to 8 cards of two sizes."""
    ledger = Ledger(lambda: 0.0)
    for n in range(nodes):
        cards = [card(f"{n}-{i}", dice.choice([16, 80])) for i in range(dice.randint(1, 8))]
        ledger.put_node(f"n{n:03}", node(*cards))
    return ledger


def ask(placer: Placer, ledger: Ledger, uid: str, wanted: SliceRequest) -> None:
    """A pod comes, and takes its place."""
    request = pod(wanted, uid=uid)
    placement = placer.choose(request, sorted(ledger.table.nodes())).placement
    if placement is not None:
        ledger.reserve(request, placement)


def waiting_lessons(dice: random.Random) -> tuple[Ledger, Placer]:
    """A placer that knows one sort of pods, and has been asked for another since."""
    ledger = cluster(dice)
    placer = Placer(ledger.table, patient=True)
    for n in range(workload_model.FIRST_REFRESHES[-1] - 1):
        ask(placer, ledger, f"old-{n}", dice.choice(OLD))
    for _ in placer.lessons():
        pass
    for n in range(workload_model.REFRESH):
        ask(placer, ledger, f"new-{n}", dice.choice(NEW))
    assert placer.has_lessons
    return ledger, placer


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_all_is_the_best_of_those_offered(seed: int):
    """A placer that looks at all nodes first chooses as one that looks up every name, whatever is left out."""
    dice = random.Random(seed)
    ledger = cluster(dice, 40)
    names, quick, plain = sorted(ledger.table.nodes()), Placer(ledger.table), Plain(ledger.table)
    for n in range(150):
        shapes = [dice.choice([*OLD, *NEW]) for _ in range(dice.choice([1, 1, 1, 2]))]
        request = pod(*shapes, uid=f"u{n}")
        offered = dice.sample([*names, "stranger"], dice.choice([41, 38, 30, 21, 3]))
        placement = quick.choose(request, offered).placement
        assert plain.choose(request, offered).placement == placement
        if placement is not None:
            assert placement.node in offered
            ledger.reserve(request, placement)
        for uid in [e.uid for e in ledger.entries() if dice.random() < 0.04]:
            ledger.release(uid)


def test_many_better_nodes_that_are_not_offered_are_passed_by():
    """Whole cards go to the nodes offered one after the other, then nowhere; names of no node offer none."""
    ledger = Ledger(lambda: 0.0)
    for n in range(60):
        ledger.put_node(f"n{n:03}", node(card(f"{n}", 16)))
    placer, offered = Placer(ledger.table), ["stranger", *(f"n{n:03}" for n in range(28, 59))]
    for n in range(31):
        ask_for(placer, ledger, f"u{n}", offered)
        assert ledger.entry(f"u{n}").node == f"n{28 + n:03}"
    assert placer.choose(pod(whole(1), uid="last"), offered).placement is None


def ask_for(placer: Placer, ledger: Ledger, uid: str, offered: Sequence[str]) -> None:
    """A pod takes one of these cards for itself."""
    request = pod(whole(1), uid=uid)
    placement = placer.choose(request, offered).placement
    assert placement is not None
    ledger.reserve(request, placement)


@pytest.mark.parametrize("seed", range(3))
def test_a_lesson_ends_where_learning_at_once_would(seed: int):
    """However the cluster changes between the steps, afterwards every answer is that of one who learned at the end."""
    dice = random.Random(seed)
    ledger, placer = waiting_lessons(dice)
    names = sorted(ledger.table.nodes())
    for step, _ in enumerate(placer.lessons()):
        if dice.random() < 0.7:
            ask(placer, ledger, f"between-{step}", dice.choice([*OLD, *NEW]))
        for uid in [e.uid for e in ledger.entries() if dice.random() < 0.01]:
            ledger.release(uid)
    assert not placer.has_lessons
    assert placer._waste
    fresh = Plain(ledger.table)
    fresh.demand, fresh._version = placer.demand, placer._version
    fresh._waste = ClusterFragmentation(ledger.table, placer._waste.typical, ())
    fresh._waste.prices = placer._waste.prices
    for n, wanted in enumerate((*OLD, *NEW)):
        request = pod(wanted, uid=f"after-{n}")
        assert placer.look(request, names) == fresh.look(request, names)


def test_until_a_lesson_ends_answers_are_those_of_before():
    """Half a lesson is none: what was known before answers, on the cluster as it is now."""
    ledger, placer = waiting_lessons(random.Random(1))
    names, before = sorted(ledger.table.nodes()), placer._waste
    twin = Placer(ledger.table, patient=True)
    twin.demand, twin._version, twin._waste = placer.demand, placer._version, before
    lesson: Iterator[None] = placer.lessons()
    for step in range(8):
        next(lesson)
        request = pod((*OLD, *NEW)[step], uid=f"between-{step}")
        answer = placer.look(request, names)
        assert answer == twin.look(request, names)
        if answer.placement is not None:
            ledger.reserve(request, answer.placement)
    assert placer._waste is before
    assert sum(1 for _ in lesson) > 8
    assert placer._waste is not before


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_whoever_is_prepared_answers_as_everybody_else(seed: int, patient: bool):
    """Whatever was announced, whether it came or not, and however much was learned or changed since."""
    dice, twins = random.Random(seed), list[tuple[Ledger, Placer]]()
    for _ in range(2):
        ledger = cluster(random.Random(seed), 40)
        twins.append((ledger, Placer(ledger.table, patient=patient)))
    (_, prepared), _ = twins
    for n in range(3 * workload_model.FIRST_REFRESHES[-1]):
        request = pod(dice.choice((*OLD, *NEW)), uid=f"p{n}")
        if dice.random() < 0.8:
            prepared.prepare(request if dice.random() < 0.7 else pod(dice.choice(NEW), uid="nobody"))
        more = dice.random() < 0.03
        answers = [answer(ledger, placer, request, f"m{n}" if more else "") for ledger, placer in twins]
        assert answers[0] == answers[1]


def test_what_an_announced_pod_asks_for_is_read_once():
    """Of the very pod; another one is read, however much it is like that."""
    ledger = cluster(random.Random(7), 1)
    decide = Filter(ledger, ForeignPlugins(()), Placer(ledger.table))
    document = pod_document([{"gpu": "1"}])
    first, second = read(document), read(document)
    decide.prepare(first)
    assert decide.request_of(first) is decide.request_of(first)
    assert decide.request_of(second) is not decide.request_of(first)
    assert decide.request_of(second) == decide.request_of(first)


@pytest.mark.parametrize("grown", [False, True])
def test_nothing_is_learned_for_a_pod_that_has_not_come(grown: bool):
    """It counts itself for what is typical, once it has come; what the cluster has grown out of waits for it, too."""
    ledger = cluster(random.Random(6), 40)
    placer = Placer(ledger.table)
    for n in range(workload_model.FIRST_REFRESHES[-1]):
        ask(placer, ledger, f"old-{n}", OLD[n % len(OLD)])
    if grown:
        ledger.put_node("grown", node(card("grown-0", 24)))
    for n in range(0 if grown else workload_model.REFRESH):
        placer.demand.note(pod(NEW[n % len(NEW)], uid=f"bound-{n}"))
    known = placer._waste
    placer.prepare(pod(OLD[0], uid="announced"))
    assert placer._waste is known
    ask(placer, ledger, "announced", OLD[0])
    assert placer._waste is not known


def answer(ledger: Ledger, placer: Placer, request: PodRequest, more: str) -> Choice:
    """What a pod gets, and takes; sometimes there is one node more, and a lesson is learned."""
    if more:
        ledger.put_node(more, node(card(f"{more}-0", 80)))
        placer.demand.note(pod(part(7), uid=more))
        for _ in placer.lessons() if placer.has_lessons else ():
            pass
    found = placer.choose(request, sorted(ledger.table.nodes()))
    if found.placement is not None:
        ledger.reserve(request, found.placement)
    return found


def test_whoever_is_prepared_has_nothing_left_to_look_at():
    """That is what it is for: the nodes have been looked at for this class of pods when the call is there."""
    ledger, placer = waiting_lessons(random.Random(4))
    request = pod(OLD[0], uid="announced")
    ask(placer, ledger, "before", OLD[0])
    ask(placer, ledger, "meanwhile", NEW[0])
    behind = [ranking for ranking in placer._rankings.values() if ranking._tick != ledger.table.tick]
    assert len(behind) == len(placer._rankings)
    placer.prepare(request)
    (ranking,) = (one for one in placer._rankings.values() if one._tick == ledger.table.tick)
    assert ranking._class.request.containers == request.containers
    assert placer._waste
    assert placer._waste._tick == ledger.table.tick


@pytest.mark.parametrize("gib", [16, 24])
@pytest.mark.parametrize("steps", [5, 13, 20, 30])
def test_a_lesson_that_the_cluster_grows_out_of_ends(steps: int, gib: int):
    """More nodes than there was room for, or a kind of cards that is new: calls learn by themselves then."""
    ledger, placer = waiting_lessons(random.Random(steps))
    lesson, rows = placer.lessons(), ledger.table.exists.shape[1]
    for _ in range(steps):
        next(lesson)
    for n in range(rows if gib == 16 else 1):
        ledger.put_node(f"more-{n}", node(card(f"more-{n}", gib)))
    for _ in lesson:
        pass
    assert placer.has_lessons
    names = sorted(ledger.table.nodes())
    for n, wanted in enumerate((*OLD, *NEW)):
        request = pod(wanted, uid=f"after-{n}")
        answer = placer.look(request, names)
        assert answer == unburdened(placer).look(request, names)


def test_classes_that_nobody_asked_for_lately_are_not_prepared(monkeypatch: pytest.MonkeyPatch):
    """They are looked at anew when they are asked for, and get the same answers."""
    monkeypatch.setattr(placer_module, "MOST_PREPARED", 2)
    ledger, placer = waiting_lessons(random.Random(5))
    assert len(placer._rankings) > 2
    for _ in placer.lessons():
        pass
    assert len(placer._rankings) == 2
    names = sorted(ledger.table.nodes())
    for n, wanted in enumerate((*OLD, *NEW)):
        request = pod(wanted, uid=f"after-{n}")
        assert placer.look(request, names) == unburdened(placer).look(request, names)


def test_what_is_hardly_new_is_not_learned():
    """Pods of the same sorts as before teach nothing, as long as no more is taken: no node is looked at again."""
    dice = random.Random(2)
    ledger = cluster(dice)
    placer = Placer(ledger.table, patient=True)
    for n in range(4 * workload_model.REFRESH):
        ask(placer, ledger, f"old-{n}", OLD[n % len(OLD)])
        if placer.has_lessons:
            for _ in placer.lessons():
                pass
    for n in range(workload_model.REFRESH):
        placer.demand.note(pod(OLD[n % len(OLD)], uid=f"more-{n}"))
    assert placer.has_lessons
    known = placer._waste
    assert sum(1 for _ in placer.lessons()) <= LOOKS
    assert placer._waste is known
    assert not placer.has_lessons


def test_a_learner_learns_between_calls():
    """It waits while a call is under way, goes on when there is none, and gets there under calls without end."""

    async def scene(endless: bool) -> None:
        _, placer = waiting_lessons(random.Random(3))
        quiet = Quiet()
        task = asyncio.create_task(ModelUpdater(placer, quiet).run())
        before = placer._waste
        async with asyncio.timeout(PATIENT_S):
            with quiet:
                while endless and placer.has_lessons:  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0)
            while placer.has_lessons:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert placer._waste is not before
        task.cancel()

    asyncio.run(scene(endless=False))
    asyncio.run(scene(endless=True))


def test_a_call_has_the_loop_to_itself():
    """A moment without calls comes after the last of them, or once patience has ended."""

    async def scene() -> list[str]:
        told, quiet = list[str](), Quiet()

        async def turns() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        async def learn() -> None:
            await quiet.moment()
            told.append("learned")

        with quiet:
            with quiet:
                task = asyncio.create_task(learn())
                await turns()
            await turns()
            told.append("one call is left")
        told.append("none is left")
        await task
        return told

    assert asyncio.run(scene()) == ["one call is left", "none is left", "learned"]
