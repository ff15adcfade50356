"""Kubernetes quantities, read exactly and refused with a sentence that says what to write instead.

The grammar is the API's (`k8s.io/apimachinery/pkg/api/resource`): a decimal number, then either a binary
suffix (Ki..Ei), a decimal suffix (n u m k M G T P E) or an exponent (`e3`, `E-3`). `E` alone is exa; `E` and
digits is an exponent. Arithmetic is on fractions: nothing is rounded on the way.
"""

import re
from collections.abc import Mapping
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30
INT64_MAX: Final = (1 << 63) - 1

Quantity = str | int | float
"""A quantity as JSON or YAML may hold it; numbers are read as the decimal text they were written as."""

_BINARY: Final[Mapping[str, int]] = MappingProxyType(
    {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
)
_DECIMAL: Final[Mapping[str, Fraction]] = MappingProxyType(
    {
        "n": Fraction(1, 10**9),
        "u": Fraction(1, 10**6),
        "m": Fraction(1, 1000),
        "": Fraction(1),
        "k": Fraction(10**3),
        "M": Fraction(10**6),
        "G": Fraction(10**9),
        "T": Fraction(10**12),
        "P": Fraction(10**15),
        "E": Fraction(10**18),
    }
)
_GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<decimals>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_OTHER_SPELLING: Final = re.compile(
    r"\s*\+?(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(?P<unit>[kmgt])(?:i?b)?i?\s*",
    re.ASCII | re.IGNORECASE,
)
"""How other programs write amounts of memory: 2g, 2GB, 2GiB, 2 gi."""
_BARE: Final = re.compile(r"\+?(?P<whole>[0-9]*)(?P<decimals>\.[0-9]+)?", re.ASCII)
_MOST_GIB: Final = 256
"""No card has more GiB, and no slice fewer MiB: a smaller number without a suffix was meant in GiB."""
# Longer texts and larger exponents are no honest request, and would make the arithmetic itself expensive.
_LONGEST: Final = 64
_LARGEST_EXPONENT: Final = 99


class QuantityError(ValueError):
    """A quantity that cannot be honoured; the message says why and what to write instead."""


def parse_quantity(text: Quantity) -> Fraction:
    """Read a Kubernetes quantity exactly.

    Raises:
        QuantityError: not a quantity, negative, or more than a signed 64-bit integer holds.
    """
    return _parse(_written(text))


@lru_cache(maxsize=4096)
def _parse(written: str) -> Fraction:
    """The same few texts are in thousands of pods."""
    match = _GRAMMAR.fullmatch(written)
    if match is None or not (match["whole"] or match["decimals"]):
        raise QuantityError(f"{written!r} is no quantity; {_meant_suffix(written)}")
    value = _magnitude(written, match)
    if match["sign"] == "-" and value:
        raise QuantityError(f"{written!r} is negative; write 0 or more")
    if value > INT64_MAX:
        raise QuantityError(f"{written!r} is more than a 64-bit number holds (8Ei); write a smaller one")
    return value


def _written(text: Quantity) -> str:
    """Return the decimal text of a quantity, which is what its author meant."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise QuantityError(f"{text!r} is no quantity; write a number with a suffix, such as 8Gi")
    try:
        written = text if isinstance(text, str) else str(text)
    except ValueError:  # the interpreter's own limit on the digits of an int
        raise QuantityError("the number is too long for a quantity") from None
    if len(written) > _LONGEST:
        raise QuantityError(f"{written[:_LONGEST]!r}... is too long for a quantity")
    return written


def _magnitude(written: str, match: re.Match[str]) -> Fraction:
    """Return the absolute value of a text that fits the grammar."""
    decimals = match["decimals"] or ""
    number = Fraction(int(match["whole"] + decimals), 10 ** len(decimals))
    if match["exponent"] is not None:
        exponent = int(match["exponent"])
        if abs(exponent) > _LARGEST_EXPONENT:
            raise QuantityError(f"{written!r} has an exponent beyond any quantity; write it with a suffix")
        return number * Fraction(10) ** exponent
    suffix = match["suffix"] or ""
    return number * (_BINARY[suffix] if suffix in _BINARY else _DECIMAL[suffix])


def parse_bytes(text: Quantity) -> int:
    """Read an amount of memory: 0, or at least 1Mi, in whole bytes.

    Raises:
        QuantityError: no quantity, a fraction of a byte, or so little that a suffix must have been forgotten.
    """
    value = parse_quantity(text)
    if 0 < value < MIB:
        raise QuantityError(f"{_written(text)} is {_plain(value)} bytes; did you mean {_meant_mib(text)}?")
    if value.denominator != 1:
        raise QuantityError(
            f"{_written(text)} is {_plain(value)} bytes, no whole number; did you mean {-(-value // MIB)}Mi?"
        )
    return int(value)


def _meant_suffix(written: str) -> str:
    """Say what to write instead of a text that is no quantity: in the API's spelling, where another one is known."""
    match = _OTHER_SPELLING.fullmatch(written)
    if match is None:
        return "write a number with a suffix, such as 8Gi"
    number = match["number"] if match["number"][0] != "." else "0" + match["number"]
    return f"did you mean {number}{match['unit'].upper()}i?"


def _meant_mib(text: Quantity) -> str:
    """Guess what the author of a tiny amount of memory wanted: the same number in GiB or the same digits in MiB."""
    bare = _BARE.fullmatch(_written(text))
    if bare and (bare["decimals"] or int(bare["whole"]) < _MOST_GIB):
        return format_bytes(-(-parse_quantity(text) * GIB // MIB) * MIB)
    digits = re.match(r"\+?([0-9]+)", _written(text))
    count = int(digits[1]) if digits else 0
    return f"{count}Mi" if 0 < count <= MIB else "1Mi"


def parse_count(text: Quantity) -> int:
    """Read a number of things: a whole number, 0 included.

    Raises:
        QuantityError: no quantity, or not whole.
    """
    value = parse_quantity(text)
    if value.denominator != 1:
        raise QuantityError(f"{_written(text)} is not a whole number; cards and instances are counted whole")
    return int(value)


def parse_percent(text: Quantity, low: int = 1, high: int = 100) -> int:
    """Read a whole percentage from `low` to `high`, written without a sign: `30`.

    Raises:
        QuantityError: no quantity, not whole, or outside the range.
    """
    written = _written(text)
    if written.endswith("%"):
        raise QuantityError(f"{written!r} has a percent sign; write {written.removesuffix('%').strip()}")
    try:
        value = parse_quantity(text)
    except QuantityError:
        value = Fraction(-1)
    if value.denominator != 1 or not low <= value <= high:
        shown = written or "an empty text"
        raise QuantityError(f"{shown} is no percentage; write a whole number from {low} to {high}")
    return int(value)


def to_mib(size_bytes: int) -> int:
    """Convert bytes to MiB, rounding up: a tenant gets at least what it asked for."""
    return -(-size_bytes // MIB)


def format_bytes(size_bytes: int) -> str:
    """Write bytes exactly, with the largest binary suffix that needs no fraction: 8Gi, 1536Mi, 1000."""
    for suffix, unit in reversed(list(_BINARY.items())):
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit}{suffix}"
    return str(size_bytes)


def _plain(value: Fraction) -> str:
    """Write a value in full; a quantity is a decimal number or a multiple of one, so its digits end."""
    digits = Context(prec=2 * _LONGEST + _LARGEST_EXPONENT)
    return f"{digits.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(digits):f}"
