"""Cards are lost and come back, report errors, and lose an instance by an admin's hand."""

from functools import partial

from aliquot.cli.demo.stack import Node
from tests.integration.chaos.chaos import Act, Chaos

HARMLESS, SEVERE = (13, 31, 43), (48, 63, 79, 94)


def _some(chaos: Chaos) -> tuple[Node, int]:
    """A node, and which of its cards."""
    node = chaos.dice.choice(list(chaos.place.nodes.values()))
    return node, chaos.dice.randrange(len(node.machine.cards))


def lose(chaos: Chaos) -> str:
    """A card no longer answers, until it is lost again or all is mended; who was lost before comes back."""
    node, index = _some(chaos)
    what = f"{node.name}'s card {index}"
    back = chaos.repairs.pop(what, None)
    if back:
        back()
        return f"{what} is back"
    node.machine.update(index, lost=True)
    chaos.repairs[what] = partial(node.machine.update, index, lost=False)
    return what


def harmless(chaos: Chaos) -> str:
    """An error that a program can cause by itself."""
    node, index = _some(chaos)
    xid = chaos.dice.choice(HARMLESS)
    node.machine.raise_xid(index, xid)
    return f"XID {xid} on {node.name}'s card {index}"


def severe(chaos: Chaos) -> str:
    """An error of the card's own: it takes nobody new until its agent is started again."""
    node, index = _some(chaos)
    xid = chaos.dice.choice(SEVERE)
    node.machine.raise_xid(index, xid)
    chaos.repairs[f"errors of {node.name}"] = partial(chaos.place.cluster.restart, node.agent)
    return f"XID {xid} on {node.name}'s card {index}"


def cut_anew(chaos: Chaos) -> str:
    """An admin destroys an instance by hand, which may be in use, or makes it again."""
    node = chaos.place.nodes["node-2"]
    back = chaos.repairs.pop("an instance", None)
    if back:
        back()
        return "it is there again"
    (index,) = (index for index, card in enumerate(node.machine.cards) if card.mig)
    instances = node.machine.cards[index].mig
    node.machine.update(index, mig=instances[:-1])
    chaos.repairs["an instance"] = partial(node.machine.update, index, mig=instances)
    return f"{instances[-1].profile} of {node.name}"


ACTS = (
    Act("a card is lost", 2, lose),
    Act("a card reports what a program has done", 1, harmless),
    Act("a card reports an error of its own", 1, severe),
    Act("an instance is destroyed by hand", 1, cut_anew),
)
