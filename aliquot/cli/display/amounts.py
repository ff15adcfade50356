"""Amounts as the command line has them: `2Gi`, `50%` of the card, and for `resize` also `+512Mi`, `-10`."""

from dataclasses import dataclass, field
from typing import Any

import click

from aliquot.cli.display.wording import size
from aliquot.units import MIB, QuantityError, parse_bytes, parse_percent, to_mib

WHOLE = 100
SIGNS = {1: "+", -1: "-"}
DECIMAL = frozenset("kMGTPE")
"""Suffixes that count by 1000."""


@dataclass(frozen=True)
class MemoryAmount:
    """Bytes, or a percentage of the card; with a sign it is a change of what there is."""

    value: int
    of_card: bool = False
    sign: int = 0
    written: str = field(default="", compare=False)
    """How it was asked for, without the sign."""

    @property
    def note(self) -> str:
        """What is to be said beside the size that is given: to many people `2G` is 2 GiB, as to HAMi-core."""
        return f" ({self.written} is decimal, unlike {self.written}i)" if self.written[-1:] in DECIMAL else ""

    def __str__(self) -> str:
        """The amount as it was understood."""
        return f"{self.value} % of the card" if self.of_card else f"{size(self.on(0))}{self.note}"

    def on(self, card_bytes: int) -> int:
        """Bytes on a card of this size: at least those that were asked for, in whole MiB; a percentage rounded down."""
        return card_bytes * self.value // WHOLE // MIB * MIB if self.of_card else to_mib(self.value) * MIB

    def after(self, now_bytes: int, card_bytes: int) -> int:
        """What there is when it was asked for beside `now_bytes`."""
        return now_bytes + self.sign * self.on(card_bytes) if self.sign else self.on(card_bytes)


@dataclass(frozen=True)
class CoreAmount:
    """Percent of a card's time (0: no share of its own); with a sign it is a change of what there is."""

    value: int
    sign: int = 0

    def after(self, now_percent: int) -> int:
        """What there is when it was asked for beside `now_percent`."""
        return now_percent + self.sign * self.value if self.sign else self.value


class Memory(click.ParamType[MemoryAmount]):
    """A Kubernetes quantity of memory, or a percentage of the card. `relative`: a sign makes it a change."""

    name = "quantity|percent%"

    def __init__(self, *, relative: bool = False) -> None:
        self._relative = relative

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> MemoryAmount:
        """The amount; the words of a refusal are those of aliquot.units."""
        if isinstance(value, MemoryAmount):
            return value
        sign, text = _signed(str(value)) if self._relative else (0, str(value))
        try:
            if text.endswith("%"):
                return MemoryAmount(_percent(text), of_card=True, sign=sign, written=text)
            return MemoryAmount(parse_bytes(text), sign=sign, written=text)
        except QuantityError as error:
            self.fail(_with_sign(str(error), sign), param, ctx)


class Core(click.ParamType[CoreAmount]):
    """A whole percentage of a card's time, with or without a percent sign."""

    name = "percent"

    def __init__(self, *, relative: bool = False) -> None:
        self._relative = relative

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> CoreAmount:
        """The amount; `none` and `uncapped`, where a share can be given up, are 0."""
        if isinstance(value, CoreAmount):
            return value
        if self._relative and value in {"none", "uncapped"}:
            return CoreAmount(0)
        sign, text = _signed(str(value)) if self._relative else (0, str(value))
        try:
            return CoreAmount(_percent(text), sign)
        except QuantityError as error:
            self.fail(str(error), param, ctx)


def _with_sign(refusal: str, sign: int) -> str:
    """A refusal whose proposal is a change, too: without its sign it would be an amount."""
    return refusal.replace("did you mean ", f"did you mean {SIGNS.get(sign, '')}")


def _percent(text: str) -> int:
    return parse_percent(text.removesuffix("%").rstrip())


def _signed(text: str) -> tuple[int, str]:
    """The sign of a change (0: it is none), and what is behind it."""
    sign = next((sign for sign, written in SIGNS.items() if text.startswith(written)), 0)
    return sign, text[1:] if sign else text
