"""The tables of docs/requests.md say what the code does."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from aliquot.kube.objects import Pod
from aliquot.names import DOMAIN
from aliquot.request import RequestError, SliceRequest, read_pod_request

PAGE = Path(__file__).parents[2] / "docs" / "requests.md"
ROW = re.compile(r"^\| `(\{.*\})` \| (.*) \|$", re.MULTILINE)


def rows(heading: str) -> list[tuple[str, str]]:
    """List the rows of the table below a heading: the limits in short, and what the page says of them."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return ROW.findall(section)


def read(limits: str) -> SliceRequest | None:
    """Read a pod whose one container has these limits, written as on the page."""
    short = yaml.load(limits, Loader=yaml.BaseLoader)  # noqa: S506 - keeps every value as it is written
    resources = {"limits": {f"{DOMAIN}/{name}": value for name, value in short.items()}}
    spec = {"containers": [{"name": "main", "resources": resources}]}
    containers = read_pod_request(msgspec.convert({"spec": spec}, Pod)).containers
    return containers[0].slice if containers else None


def in_words(part: SliceRequest | None) -> str:
    """Say a slice as the page does."""
    if part is None:
        return "nothing"
    cards = f"{part.cards} card" if part.cards == 1 else f"{part.cards} cards"
    memory = f"{part.memory_percent} %" if part.memory_mib is None else f"{part.memory_mib} MiB"
    words = [cards, memory, f"{part.cores} cores" if part.cores else "uncapped"]
    return ", ".join([*words, "alone"] if part.exclusive else words)


@pytest.mark.parametrize(("limits", "words"), rows("What is accepted"))
def test_what_the_page_accepts_means_what_it_says(limits: str, words: str):
    """Every row of the first table is the slice that the pod gets."""
    assert in_words(read(limits)) == words


@pytest.mark.parametrize(("limits", "sentence"), rows("What is refused"))
def test_what_the_page_refuses_is_refused_in_these_words(limits: str, sentence: str):
    """Every row of the second table is refused with exactly its sentence."""
    with pytest.raises(RequestError) as refused:
        read(limits)
    assert str(refused.value) == f"container 'main': {refused.value.resource}: {sentence}"


def test_the_page_has_its_tables():
    """A page whose tables could not be found would prove nothing."""
    assert len(rows("What is accepted")) > 5
    assert len(rows("What is refused")) > 15
