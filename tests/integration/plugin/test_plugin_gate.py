"""What the gate lets in, what it waits for and what it refuses."""

import subprocess
import threading

import grpc
import pytest

from aliquot.libshim.control_page import CardLimit, read_control
from aliquot.libshim.usage_page import read_usage
from aliquot.request.placement import CardShare
from aliquot.request.pod_request import ContainerKind
from tests.integration.plugin.small_kubelet import Held, until
from tests.integration.plugin.world import GPU, World, container, occupy, slice_of

GIB = 1024


def placed_pod(world: World, name: str, memory: int, core: int = 0, card: int = 0) -> Held:
    """A pod of one container with a slice on one card, admitted by the kubelet."""
    share = CardShare(world.uuids[card], memory * GIB, core)
    pod = world.pod(name, [container("main", slice_of(f"{memory}Gi", core))], {"main": [share]})
    return world.kubelet.allocate(pod, "main", GPU, 1)


def limits(world: World, nonce: str) -> tuple[CardLimit, ...]:
    """The limits a container of this nonce would find."""
    return read_control(world.control(nonce)).cards


def test_a_placement_that_comes_late_is_waited_for(busy: World):
    """The kubelet knows the pod before the watch has brought it."""
    share = CardShare(busy.uuids[0], GIB, 0)
    pod = busy.pod("late", [container("main", slice_of("1Gi"))], None)
    held = busy.kubelet.allocate(pod, "main", GPU, 1)
    text = busy.placement(pod["metadata"]["uid"], {"main": [share]})
    patch = {"metadata": {"annotations": {"aliquot.dev/placement": text}}}
    path = "/api/v1/namespaces/default/pods/late"
    call = busy.kubelet.ask(held)
    until(lambda: "a container waits: pod default/late: has no placement" in busy.log, "the gate waits")
    busy.api.request("PATCH", path, patch, "application/merge-patch+json")
    call.result()
    assert limits(busy, held.nonce)[0].uuid == busy.uuids[0]


CONTRADICTIONS = {
    "less memory than asked": (
        lambda w: [CardShare(w.uuids[0], 4 * GIB, 30)],
        "container main, aliquot.dev/gpu-mem: asks for 8Gi, the placement gives 4Gi on card",
    ),
    "other compute than asked": (
        lambda w: [CardShare(w.uuids[0], 8 * GIB, 50)],
        "container main, aliquot.dev/gpu-core: asks for 30, the placement gives 50 on card",
    ),
    "a card too many": (
        lambda w: [CardShare(uuid, 8 * GIB, 30) for uuid in w.uuids],
        r"container main, aliquot.dev/gpu: asks for 1 card\(s\), the placement gives 2",
    ),
    "a card of another node": (
        lambda _: [CardShare("GPU-elsewhere", 8 * GIB, 30)],
        "container main, aliquot.dev/gpu: placed on card GPU-elsewhere, which is not on this node",
    ),
}


def test_a_contradiction_is_refused_at_once_with_pod_container_and_resource(busy: World):
    """Waiting cannot help where request and placement differ, so the reason comes without a wait."""
    for number, (case, (shares, message)) in enumerate(CONTRADICTIONS.items()):
        name = f"wrong-{number}"
        pod = busy.pod(name, [container("main", slice_of("8Gi", 30))], {"main": shares(busy)})
        held = busy.kubelet.allocate(pod, "main", GPU, 1)
        with pytest.raises(grpc.RpcError, match=f"pod default/{name}, {message}") as refused:
            busy.kubelet.pre_start(held)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION, case
        assert "waited" not in str(refused.value.details()), case


def test_a_card_asked_for_alone_is_not_shared(busy: World):
    """A placement that would share it is refused; one that holds alone what takes all its time is a dialect's right."""
    whole = CardShare(busy.uuids[0], 16 * GIB, 100)
    pod = busy.pod("whole", [container("main", {GPU: "1"})], {"main": [whole]})
    held = busy.kubelet.allocate(pod, "main", GPU, 1)
    with pytest.raises(grpc.RpcError, match="asks for a card held alone, the placement shares it"):
        busy.kubelet.pre_start(held)
    alone = CardShare(busy.uuids[0], 8 * GIB, 100, exclusive=True)
    pod = busy.pod("hami", [container("main", slice_of("8Gi", 100))], {"main": [alone]})
    busy.kubelet.pre_start(busy.kubelet.allocate(pod, "main", GPU, 1))
    forged = CardShare(busy.uuids[1], 8 * GIB, 30, exclusive=True)
    pod = busy.pod("forged", [container("main", slice_of("8Gi", 30))], {"main": [forged]})
    held = busy.kubelet.allocate(pod, "main", GPU, 1)
    with pytest.raises(grpc.RpcError, match="asks for 30 % of a card, the placement holds it alone"):
        busy.kubelet.pre_start(held)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no placement"),
        ('{"version":7}', "version 7"),
        ("other", "is for pod other-uid"),
    ],
)
def test_an_annotation_that_is_no_placement_of_this_pod_is_refused(busy: World, text: str, message: str):
    """Damaged, of another version, or copied from another pod."""
    if text == "other":
        text = busy.placement("other-uid", {"main": [CardShare(busy.uuids[0], GIB, 0)]})
    pod = busy.pod("odd", [container("main", slice_of("1Gi"))], None)
    busy.api.request(
        "PATCH",
        "/api/v1/namespaces/default/pods/odd",
        {"metadata": {"annotations": {"aliquot.dev/placement": text}}},
        "application/merge-patch+json",
    )
    held = busy.kubelet.allocate(pod, "main", GPU, 1)
    with pytest.raises(grpc.RpcError, match=f"pod default/odd: .*{message}"):
        busy.kubelet.pre_start(held)


def test_more_than_a_card_has_is_refused_and_fits_once_the_other_is_gone(busy: World):
    """Whoever was let in first keeps its memory; the later pod gets in when the first is really gone."""
    first, second = placed_pod(busy, "first", 10), placed_pod(busy, "second", 10)
    busy.kubelet.pre_start(first)
    with pytest.raises(
        grpc.RpcError, match=r"pod default/second: does not fit .* 10240 MiB asked, 6144 MiB left"
    ):
        busy.kubelet.pre_start(second)
    busy.kubelet.pre_start(first)
    busy.delete("first")
    busy.kubelet.forget(first.uid)
    busy.kubelet.pre_start(second)
    assert limits(busy, second.nonce)[0].memory_bytes == 10 << 30


def test_compute_beyond_a_whole_card_and_company_on_an_exclusive_card_are_refused(busy: World):
    """Cores add up to 100 percent; a card held alone takes nobody else."""
    busy.kubelet.pre_start(placed_pod(busy, "half", 1, 60))
    with pytest.raises(grpc.RpcError, match="50 % of its time asked, 40 % left"):
        busy.kubelet.pre_start(placed_pod(busy, "more", 1, 50))
    whole = CardShare(busy.uuids[0], 16 * GIB, 100, exclusive=True)
    pod = busy.pod("alone", [container("main", {GPU: "1"})], {"main": [whole]})
    with pytest.raises(grpc.RpcError, match="would not be held alone: 1 other pod"):
        busy.kubelet.pre_start(busy.kubelet.allocate(pod, "main", GPU, 1))


def test_memory_of_a_force_deleted_pod_counts_while_a_process_of_it_lives(busy: World):
    """The API and the kubelet have forgotten the pod, but its process still holds the card."""
    first, second = placed_pod(busy, "zombie", 10), placed_pod(busy, "next", 10)
    busy.kubelet.pre_start(first)
    process = subprocess.Popen(["/bin/sleep", "60"])
    try:
        occupy(busy.usage(first.nonce), process, 1 << 30)
        busy.delete("zombie")
        busy.kubelet.forget(first.uid)
        with pytest.raises(grpc.RpcError, match="does not fit this node"):
            busy.kubelet.pre_start(second)
    finally:
        process.kill()
        process.wait()
    busy.kubelet.pre_start(second)


def test_two_equal_pods_at_once_each_get_their_own_limits(busy: World):
    """Same requests by count, other memory, started at the same moment in the other order."""
    pairs = [(placed_pod(busy, f"twin-{n}", n + 1, card=n % 2), n + 1) for n in range(6)]
    threads = [threading.Thread(target=busy.kubelet.pre_start, args=(held,)) for held, _ in reversed(pairs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (held, memory) in enumerate(pairs):
        (card,) = limits(busy, held.nonce)
        assert (card.uuid, card.memory_bytes) == (busy.uuids[number % 2], memory << 30)


def test_a_restarted_container_keeps_its_pages_and_its_place(busy: World):
    """The same inodes; use that a dead container left behind is cleared, and only then."""
    held = placed_pod(busy, "again", 10)
    busy.kubelet.pre_start(held)
    control, usage = busy.control(held.nonce), busy.usage(held.nonce)
    inodes = (control.stat().st_ino, usage.stat().st_ino)
    process = subprocess.Popen(["/bin/sleep", "60"])
    occupy(usage, process, 1 << 30)
    busy.kubelet.pre_start(held)
    assert read_usage(usage).cards[0].memory_used_bytes == 1 << 30
    process.kill()
    process.wait()
    busy.kubelet.pre_start(held)
    assert read_usage(usage).processes == ()
    assert read_usage(usage).cards[0].memory_used_bytes == 0
    assert (control.stat().st_ino, usage.stat().st_ino) == inodes


def test_a_truncated_usage_page_is_mended_at_the_next_start(busy: World):
    """A tenant may do as it likes with its page; it harms nobody, and the page keeps its inode."""
    held = placed_pod(busy, "vandal", 1)
    busy.kubelet.pre_start(held)
    usage = busy.usage(held.nonce)
    inode = usage.stat().st_ino
    usage.write_bytes(b"")
    busy.kubelet.pre_start(held)
    assert read_usage(usage).processes == ()
    assert usage.stat().st_ino == inode


def test_a_pod_made_again_under_its_name_gets_its_own_placement(busy: World):
    """PodResources tells names only; the UID keeps the two apart."""
    old = placed_pod(busy, "same", 2)
    busy.kubelet.pre_start(old)
    busy.delete("same")
    busy.kubelet.forget(old.uid)
    new = placed_pod(busy, "same", 3, card=1)
    busy.kubelet.pre_start(new)
    assert limits(busy, new.nonce) == (CardLimit(busy.uuids[1], 3 << 30, 0),)


def init_pod(world: World, name: str) -> tuple[Held, Held]:
    """A plain init container and a regular one that uses the same device id, with different memory."""
    shares = {
        name: [CardShare(world.uuids[0], mib, 0)] for name, mib in (("load", 2 * GIB), ("main", 4 * GIB))
    }
    pod = world.pod(
        name,
        [container("main", slice_of("4Gi"))],
        shares,
        [container("load", slice_of("2Gi"))],
        load=ContainerKind.INIT,
    )
    load = world.kubelet.allocate(pod, "load", GPU, 1)
    return load, world.kubelet.allocate(pod, "main", GPU, 1, reuse=load.ids)


def test_a_plain_init_container_gets_its_own_limits_though_it_shares_the_id(busy: World):
    """PodResources names only the later container; the kubelet's checkpoint tells the two apart."""
    load, main = init_pod(busy, "with-init")
    assert load.ids == main.ids
    for starting in (load, main):
        busy.kubelet.pre_start(starting)
        assert limits(busy, load.nonce)[0].memory_bytes == 2 << 30
        assert limits(busy, main.nonce)[0].memory_bytes == 4 << 30


def test_pods_to_which_the_kubelet_gives_the_same_id_have_each_its_own_limits(busy: World):
    """One runs, and another starts; then the first one's container is started again."""
    first = placed_pod(busy, "first", 2)
    busy.kubelet.pre_start(first)
    share = CardShare(busy.uuids[1], 4 * GIB, 0)
    pod = busy.pod("second", [container("main", slice_of("4Gi"))], {"main": [share]})
    second = busy.kubelet.allocate(pod, "main", GPU, 1, reuse=first.ids)
    for starting in (second, first):
        busy.kubelet.pre_start(starting)
        assert limits(busy, first.nonce) == (CardLimit(busy.uuids[0], 2 << 30, 0),)
        assert limits(busy, second.nonce) == (CardLimit(busy.uuids[1], 4 << 30, 0),)


def test_an_answer_that_the_kubelet_did_not_keep_misleads_nobody(busy: World):
    """Admission was tried again: the kept answers say which nonce is whose, not the order of all that were given."""
    load, lost = init_pod(busy, "tried-again")
    busy.kubelet.held.remove(lost)
    main = busy.kubelet.allocate(busy.read("tried-again"), "main", GPU, 1, reuse=load.ids)
    busy.kubelet.pre_start(main)
    assert limits(busy, load.nonce)[0].memory_bytes == 2 << 30
    assert limits(busy, main.nonce)[0].memory_bytes == 4 << 30


def test_without_readable_answers_in_the_checkpoint_the_order_of_start_decides(busy: World):
    """The checkpoint's format is the kubelet's own: here it no longer tells which answer was whose."""
    load, main = init_pod(busy, "unread")
    path = busy.kubelet.plugins / "kubelet_internal_checkpoint"
    path.write_text(path.read_text().replace('"AllocResp": "', '"AllocResp": "?'))
    busy.kubelet.pre_start(load)
    assert limits(busy, load.nonce)[0].memory_bytes == 2 << 30
    assert limits(busy, main.nonce)[0].memory_bytes == 4 << 30


def test_without_a_checkpoint_pod_resources_and_a_live_look_at_the_pod_suffice(busy: World):
    """Only the promised interface is needed for ordinary containers."""
    busy.kubelet.writes_checkpoint = False
    held = placed_pod(busy, "plain", 5)
    busy.kubelet.pre_start(held)
    assert limits(busy, held.nonce)[0].memory_bytes == 5 << 30


def test_an_init_container_that_alone_asks_is_found_by_the_checkpoint(busy: World):
    """PodResources shows the pod with no devices at all."""
    pod = busy.pod(
        "init-only",
        [container("main", {})],
        {"load": [CardShare(busy.uuids[0], GIB, 0)]},
        [container("load", slice_of("1Gi"))],
        load=ContainerKind.INIT,
    )
    held = busy.kubelet.allocate(pod, "load", GPU, 1)
    busy.kubelet.pre_start(held)
    assert limits(busy, held.nonce)[0].memory_bytes == 1 << 30


def test_sidecars_and_several_containers_of_a_pod_have_slices_of_their_own(busy: World):
    """A native sidecar and two regular containers, one of them on two cards."""
    first, second = busy.uuids
    shares = {
        "side": [CardShare(first, GIB, 0)],
        "one": [CardShare(first, 2 * GIB, 20)],
        "two": [CardShare(first, 3 * GIB, 0), CardShare(second, 3 * GIB, 0)],
    }
    pod = busy.pod(
        "many",
        [container("one", slice_of("2Gi", 20)), container("two", slice_of("3Gi", cards=2))],
        shares,
        [container("side", slice_of("1Gi"), restartPolicy="Always")],
        side=ContainerKind.SIDECAR,
    )
    counts = {"side": 1, "one": 1, "two": 2}
    held = {name: busy.kubelet.allocate(pod, name, GPU, count) for name, count in counts.items()}
    for one in held.values():
        busy.kubelet.pre_start(one)
    found = {name: limits(busy, one.nonce) for name, one in held.items()}
    assert found == {
        "side": (CardLimit(first, 1 << 30, core_share_bp=4000, core_most_percent=100),),
        "one": (CardLimit(first, 2 << 30, 20, core_share_bp=2000, core_most_percent=20),),
        "two": (
            CardLimit(first, 3 << 30, core_share_bp=4000, core_most_percent=100),
            CardLimit(second, 3 << 30),
        ),
    }
    minors = [card.minor for card in busy.machine.cards if card.uuid in busy.uuids]
    assert busy.edits(held["two"].nonce)[1][:2] == [f"/dev/nvidia{minor}" for minor in minors]


def test_all_that_a_pod_had_is_removed_when_it_is_gone(busy: World):
    """Spec, pages, tenancy, cached placement and journal line."""
    held = placed_pod(busy, "gone", 1)
    busy.kubelet.pre_start(held)
    control = busy.control(held.nonce)
    busy.delete("gone")
    busy.kubelet.forget(held.uid)
    until(lambda: not control.exists(), "pages removed")
    until(lambda: not (busy.state / "tenancies" / f"{held.uid}.json").exists(), "tenancy removed")
    until(lambda: not list((busy.root / "cdi").glob(f"*{held.nonce}*")), "spec removed")
    until(lambda: not (busy.state / "pods" / f"{held.uid}.json").exists(), "placement removed")
    until(lambda: held.nonce not in (busy.state / "journal").read_text(), "journal line removed")
