"""The tables of docs/requests.md say what the code does."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from aliquot.api.names import CORE_LIMIT_ANNOTATION, CORE_MODE_ANNOTATION, DOMAIN, PRIORITY_ANNOTATION
from aliquot.crds.gpu_pool import NO_POOL
from aliquot.kube.objects import Pod
from aliquot.request.core_policy import CoreMode
from aliquot.request.pod_request import RequestError, SliceRequest, read_pod_request

PAGE = Path(__file__).parents[3] / "docs" / "requests.md"
ANNOTATIONS = (CORE_MODE_ANNOTATION, CORE_LIMIT_ANNOTATION, PRIORITY_ANNOTATION)
ROW = re.compile(r"^\| `(\{.*\})` \| (.*) \|$", re.MULTILINE)


def rows(heading: str) -> list[tuple[str, str]]:
    """List the rows of the table below a heading: the limits in short, and what the page says of them."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n##")[0]
    return ROW.findall(section)


def read(asked: str) -> SliceRequest | None:
    """Read a pod of one container with these limits, and these annotations, written as on the page."""
    short = yaml.load(asked, Loader=yaml.BaseLoader)  # noqa: S506 - keeps every value as it is written
    full = {f"{DOMAIN}/{name}": value for name, value in short.items()}
    annotations = {name: full.pop(name) for name in ANNOTATIONS if name in full}
    spec = {"containers": [{"name": "main", "resources": {"limits": full}}]}
    pod = msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, Pod)
    containers = read_pod_request(pod).containers
    return containers[0].slice if containers else None


def in_words(part: SliceRequest | None) -> str:
    """Say a slice as the page does."""
    if part is None:
        return "nothing"
    cards = f"{part.cards} card" if part.cards == 1 else f"{part.cards} cards"
    memory = f"{part.memory_percent} %" if part.memory_mib is None else f"{part.memory_mib} MiB"
    words = [cards, memory, f"{part.cores} cores" if part.cores else "uncapped"]
    return ", ".join([*words, "alone"] if part.exclusive else words)


def time_in_words(part: SliceRequest) -> str:
    """Say how its time is held, where no pool says anything."""
    terms = NO_POOL.core_terms_for(part.policy, part.cores)
    share = f"{part.cores} %" if part.cores else "an equal part of what the shares leave"
    words = [share]
    if terms.mode is CoreMode.CAPPED:
        assert terms.most_percent == part.cores
        words.append("never more")
    else:
        words.append(f"up to {terms.most_percent} % when others leave it")
    return ", ".join([*words, f"priority {terms.priority}"] if terms.priority else words)


@pytest.mark.parametrize(("limits", "words"), rows("What is accepted"))
def test_what_the_page_accepts_means_what_it_says(limits: str, words: str):
    """Every row of the first table is the slice that the pod gets."""
    assert in_words(read(limits)) == words


@pytest.mark.parametrize(("asked", "words"), rows("Compute time"))
def test_time_is_held_as_the_page_says(asked: str, words: str):
    """Every row of the table of modes."""
    part = read(asked)
    assert part
    assert time_in_words(part) == words


@pytest.mark.parametrize(
    ("limits", "sentence"), [*rows("What is refused"), *rows("Compute time that is refused")]
)
def test_what_the_page_refuses_is_refused_in_these_words(limits: str, sentence: str):
    """Every row of the second table is refused with exactly its sentence."""
    with pytest.raises(RequestError) as refused:
        read(limits)
    assert str(refused.value) == f"container 'main': {refused.value.resource}: {sentence}"


def test_the_page_has_its_tables():
    """A page whose tables could not be found would prove nothing."""
    assert len(rows("What is accepted")) > 5
    assert len(rows("What is refused")) > 15
    assert len(rows("Compute time")) > 5
    assert len(rows("Compute time that is refused")) > 8
