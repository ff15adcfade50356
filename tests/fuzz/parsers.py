"""Fuzzes what reads others' bytes in Python: seeds are real ones, changed at random, for so many seconds.

    python -m tests.fuzz.parsers --minutes 10 [TARGET ...]     prints the seed; an input that breaks a promise is kept

Each target promises that whatever comes is read, or refused by its own error, and what was read says what it may say.
Inputs that break that, or that would where a line of care were missing, lie in `findings/TARGET` and are replayed every
day.
"""

import argparse
import json
import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from aliquot.api.names import ResourceNames
from aliquot.dialects.hami import HamiDialect
from aliquot.libshim.control_page import CardLimit, Control, create_control, read_control
from aliquot.libshim.page_file import PageError
from aliquot.libshim.usage_page import create_usage, read_card_usages, read_newest_wish, read_usage
from aliquot.node.processes import Processes
from aliquot.plugin.container.tenant_pages import living
from aliquot.plugin.kubelet.checkpoint import read_checkpoint
from aliquot.request.placement import PlacementError, decode_placement, encode_placement
from aliquot.request.pod_request import RequestError, read_pod_request
from aliquot.scheduler_ext.explain.filter_dry_run import read_dry_run
from aliquot.scheduler_ext.kube_scheduler.wire import WireError, read_bind, read_filter, read_preempt
from aliquot.units import (
    QuantityError,
    format_bytes,
    parse_bytes,
    parse_count,
    parse_percent,
    parse_quantity,
)
from aliquot.webhook.metrics import WebhookMetrics
from aliquot.webhook.mutate import Mutator
from aliquot.webhook.review import ReviewError, read_review
from aliquot.webhook.server import Webhook

HERE = Path(__file__).resolve().parent
WIRE = HERE.parent / "data" / "wire"
FINDINGS = HERE / "findings"
LARGEST = 1 << 62
_WORDS: Sequence[bytes] = (
    b"-1", b"0", b"1e9Ei", b"0.1m", b"9" * 40, b"1e999999999", b"1e-999999999", b"0x10", b"NaN", b"null", b"true",
    b"[]", b"{}", b'""', b'"\\ud800"', b"\xff", b"\x00", b"Ei", b"Mi", b"m", b"n", b"4096Mi",
    b"[" * 2000, b'{"a":' * 2000,
    b"aliquot.dev/gpu-mem", b"nvidia.com/gpumem", b"GPU-", b"1" * 5000,
)  # fmt: skip


def quantity(data: bytes, _: Path) -> None:
    """Quantities: exact, or refused; bytes fit 64 bits and are written so that they are read as the same."""
    text = data.decode(errors="replace")
    for read in (parse_quantity, parse_bytes, parse_count, parse_percent):
        try:
            value = read(text)
        except QuantityError:
            continue
        if read is parse_bytes:
            assert 0 <= value < 1 << 64
            assert parse_bytes(format_bytes(int(value))) == value


def placement(data: bytes, _: Path) -> None:
    """Placements: what is read is written so that it is read as the same."""
    try:
        read = decode_placement(data.decode(errors="surrogateescape"))
    except PlacementError:
        return
    assert decode_placement(encode_placement(read)) == read


_WEBHOOK = Webhook(Mutator(ResourceNames(), (HamiDialect(),)), WebhookMetrics(CollectorRegistry()))


def review(data: bytes, _: Path) -> None:
    """AdmissionReviews: an answer that can be sent, under the uid that was asked."""
    try:
        asked = read_review(data)
    except ReviewError:
        return
    _, answer = _WEBHOOK._answer(asked)
    assert json.loads(msgspec.json.encode(answer))["response"]["uid"] == asked.uid


def extender(data: bytes, _: Path) -> None:
    """Calls of the extender, and what their pods ask for."""
    for read in (read_filter, read_preempt, read_bind, read_dry_run):
        try:
            args = read(data)
        except WireError:
            continue
        pod = getattr(args, "Pod", None)
        if pod is not None:
            try:
                read_pod_request(pod, dialects=(HamiDialect(),))
            except RequestError:
                continue


def checkpoint(data: bytes, root: Path) -> None:
    """The kubelet's notes, which say nothing where they cannot be read."""
    path = root / "checkpoint"
    path.write_bytes(data)
    for entry in read_checkpoint(path):
        assert isinstance(entry.pod_uid, str)
        assert all(isinstance(one, str) for one in entry.ids)


_LIVING = Processes().read()


def usage(data: bytes, root: Path) -> None:
    """A tenant's page, which is whatever the tenant likes; numbers stay what 64 bits hold."""
    path = root / "usage"
    path.write_bytes(data)
    for read in (read_usage, read_card_usages, read_newest_wish, read_control):
        try:
            found = read(path)
        except PageError:
            continue
        if read is read_usage:
            living(found, "", _LIVING)
            assert all(0 <= card.memory_used_bytes <= LARGEST for card in found.cards)


TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    "quantity": quantity,
    "placement": placement,
    "review": review,
    "extender": extender,
    "checkpoint": checkpoint,
    "usage": usage,
}


def seeds(target: str, root: Path) -> list[bytes]:
    """Real ones."""
    wire = {
        name: (WIRE / name).read_bytes()
        for name in ("admission-create.json", "kubelet_internal_checkpoint.json")
    }
    asked = json.loads(wire["admission-create.json"])
    limits = {"aliquot.dev/gpu-mem": "8Gi", "aliquot.dev/gpu-core": "30", "nvidia.com/gpumem": "3000"}
    asked["request"]["object"]["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
    create_control(root / "c", Control("a/b/c", (CardLimit("GPU-1", 1 << 30),)))
    create_usage(root / "u")
    calls = [(WIRE / f"extender-{verb}.json").read_bytes() for verb in ("filter", "bind", "preempt")]
    return {
        "quantity": [b"8Gi", b"4096Mi", b"0.5", b"1e3", b"100m", b"30", b"12e-1Ki"],
        "placement": [encode_example().encode()],
        "review": [wire["admission-create.json"], json.dumps(asked).encode()],
        "extender": calls,
        "checkpoint": [wire["kubelet_internal_checkpoint.json"]],
        "usage": [(root / "u").read_bytes(), (root / "c").read_bytes()],
    }[target]


def encode_example() -> str:
    """A placement as the scheduler writes it."""
    from aliquot.request.placement import CardShare, ContainerPlacement, Placement
    from aliquot.request.pod_request import ContainerKind

    share = CardShare("GPU-1", 1024, 30)
    containers = (ContainerPlacement("main", ContainerKind.REGULAR, (share,)),)
    return encode_placement(Placement("uid", "node", containers))


def mutated(dice: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One of them, changed in some places."""
    data = bytearray(dice.choice(corpus))
    for _ in range(dice.choice((1, 1, 2, 3, 8))):
        place = dice.randrange(len(data) + 1)
        kind = dice.randrange(6)
        if kind == 0:
            del data[place : place + dice.choice((1, 4, 16, 200))]
        elif kind == 1:
            data[place:place] = dice.choice(_WORDS)
        elif kind == 2:
            data[place : place + 8] = dice.randbytes(8)
        elif kind == 3:
            del data[place:]
        elif kind == 4:
            other = dice.choice(corpus)
            start = dice.randrange(len(other) + 1)
            data[place:place] = other[start : start + dice.randrange(100)]
        elif place < len(data):
            data[place] = dice.randrange(256)
    return bytes(data)


def fuzz(target: str, seed: int, seconds: float, root: Path) -> int:
    """How many inputs were read or refused as promised; the first that was not is kept, and its error raised."""
    dice, corpus, count = random.Random(f"{seed} {target}"), seeds(target, root), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = mutated(dice, corpus)
        try:
            TARGETS[target](data, root)
        except BaseException:
            (root / f"{target}-found").write_bytes(data)
            print(f"{target}: seed {seed}: {root / f'{target}-found'}")
            raise
        count += 1
    return count


def main() -> int:
    """Fuzz them one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    root = Path(tempfile.mkdtemp(prefix="aliquot-parsers-"))
    for target in given.targets:
        count = fuzz(target, given.seed, given.minutes * 60, root)
        print(f"{target}: {count} inputs, seed {given.seed}: clean", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
