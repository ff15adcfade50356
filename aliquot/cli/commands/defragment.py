"""`aliquot defragment`: which pods to move where, so that a request has room."""

import asyncio
from collections.abc import Iterator

import click
import msgspec

from aliquot.api.defragment import Defragmentation, Room
from aliquot.cli.commands.extender import Where, ask, extender_options
from aliquot.cli.commands.why import moved, names_of
from aliquot.cli.options import Refusal
from aliquot.kube.objects import UNREADABLE


@click.command()
@extender_options
@click.option("--gpu", metavar="CARDS", help="How many cards, each with so much.")
@click.option("--mem", metavar="QUANTITY", help="Memory on each card, such as 40Gi.")
@click.option("--core", metavar="PERCENT", help="Percent of each card's time.")
@click.option(
    "-n", "--namespace", default="default", help="Whose quota the request is held to.", show_default=True
)
def defragment(
    *,
    where: Where,
    as_json: bool,
    gpu: str | None,
    mem: str | None,
    core: str | None,
    namespace: str,
) -> None:
    """Say which pods to move where, so that a request for cards has room.

    Nothing is moved, and nothing is changed by asking. --gpu alone is for whole cards. The exit status is 1 where no
    moving of pods makes room.
    """
    if not (gpu or mem or core):
        raise click.UsageError("say for what: give at least one of --gpu, --mem and --core")
    amounts = {"gpu": gpu, "gpu-mem": mem, "gpu-core": core}
    question = {"namespace": namespace, **{name: amount for name, amount in amounts.items() if amount}}
    plan = asyncio.run(_plan(where, question))
    click.echo(
        msgspec.json.format(msgspec.json.encode(plan)).decode() if as_json else "\n".join(_lines(plan))
    )
    if plan.room is Room.NONE:
        raise SystemExit(1)


async def _plan(where: Where, question: dict[str, str]) -> Defragmentation:
    """The extender's plan, with the names of pods that this user may list."""
    raw = await ask(where, "defragment", question)
    try:
        plan = msgspec.json.decode(raw, type=Defragmentation)
    except UNREADABLE as error:
        raise Refusal(f"what answers is no extender of this version: {error}") from error
    names = await names_of({move.from_node for move in plan.moves}, where.kubeconfig)
    moves = (msgspec.structs.replace(move, pod=names.get(move.uid, "")) for move in plan.moves)
    return msgspec.structs.replace(plan, moves=tuple(moves))


def _lines(plan: Defragmentation) -> Iterator[str]:
    """What people read."""
    yield plan.text + ("" if plan.room is Room.NONE else f": {', '.join(plan.nodes)}")
    yield from (f"  {moved(move)}" for move in plan.moves)
