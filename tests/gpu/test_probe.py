"""The simulated driver answers as this card's driver does."""

import re
from pathlib import Path

import pytest

from aliquot.sandbox.probe import compare, run
from tests.gpu.conftest import Card

DATA = Path(__file__).parents[1] / "data" / "probe"


def transcript_of(card: Card) -> Path:
    """Where the card's answers are kept."""
    name = re.sub(r"\W+", "-", f"{card.name} {card.driver}").strip("-").lower()
    return DATA / f"{name}.jsonl"


@pytest.mark.gpu
def test_the_card_answers_as_it_did(card: Card):
    """What is kept of this card and driver is what they say today; a new card's answers are kept."""
    answers, kept = run(), transcript_of(card)
    if not kept.exists():
        kept.write_text(answers)
    assert [d for d in compare(kept.read_text(), answers) if not d.is_card] == []


@pytest.mark.gpu
def test_the_simulation_answers_as_the_card(card: Card):
    """Every question is answered the same by both, but for what differs from card to card."""
    simulated = (DATA / "simulator.jsonl").read_text()
    assert [d for d in compare(run(), simulated) if not d.is_card] == []
