"""The agent's files are damaged or deleted, under a running agent and before one starts."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from aliquot.cli.demo.stack import Node
from tests.integration.chaos.chaos import Act, Chaos

Find = Callable[[Chaos, Node], list[Path]]


def journal(_: Chaos, node: Node) -> list[Path]:
    """Which nonce is whose."""
    return [node.directory / "state" / "journal"]


def tenancies(_: Chaos, node: Node) -> list[Path]:
    """Who was let in."""
    return list((node.directory / "state" / "tenancies").glob("*.json"))


def cached_pods(_: Chaos, node: Node) -> list[Path]:
    """What was placed."""
    return list((node.directory / "state" / "pods").glob("*.json"))


def specs(chaos: Chaos, node: Node) -> list[Path]:
    """The CDI files."""
    return list(chaos.place.cluster.node(node.name).cdi.glob("*.json"))


def sockets(chaos: Chaos, node: Node) -> list[Path]:
    """Where the kubelet calls the agent."""
    return list(chaos.place.cluster.node(node.name).device_plugins.glob("aliquot-*.sock"))


def damage(find: Find, chaos: Chaos) -> str:
    """One of a node's files is cut short, changed or deleted, as an agent finds it that has been killed."""
    node = chaos.dice.choice(list(chaos.place.nodes.values()))
    chaos.place.cluster.kill(node.agent)
    found = [path for path in find(chaos, node) if path.exists()]
    said = [_damage(chaos, path) for path in chaos.dice.sample(found, min(1, len(found)))]
    chaos.place.cluster.restart(node.agent)
    return f"{node.name}: {said or 'nothing is there'}"


def _damage(chaos: Chaos, path: Path) -> str:
    size, how = path.stat().st_size, chaos.dice.choice(["cut", "changed", "deleted"])
    if how == "cut":
        os.truncate(path, size // 2)
    elif how == "changed":
        with path.open("r+b") as file:
            file.seek(chaos.dice.randrange(max(1, size)))
            file.write(b"\xff")
    else:
        path.unlink()
    return f"{path.name} is {how}"


def delete(find: Find, chaos: Chaos) -> str:
    """All such files of a node are deleted under a running agent."""
    node = chaos.dice.choice(list(chaos.place.nodes.values()))
    found = find(chaos, node)
    for path in found:
        path.unlink(missing_ok=True)
    return f"{len(found)} of {node.name}"


ACTS = (
    Act("the journal is damaged", 1, partial(damage, journal)),
    Act("a tenancy is damaged", 1, partial(damage, tenancies)),
    Act("a cached pod is damaged", 1, partial(damage, cached_pods)),
    Act("CDI files are deleted", 1, partial(delete, specs)),
    Act("the agent's sockets are deleted", 1, partial(delete, sockets)),
)
