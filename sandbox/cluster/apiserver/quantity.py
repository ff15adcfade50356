"""Kubernetes quantities, read exactly and written as the API server writes them back (canonical form).

A client that sends `8192Mi` reads back `8Gi`: services that compare strings would trip over it on a real
cluster, so they should here.
"""

from __future__ import annotations

import re
from fractions import Fraction

_PATTERN = re.compile(
    r"^(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$"
)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SHAPE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class QuantityError(ValueError):
    """Not a quantity."""


def parse(value: object) -> Fraction:
    """Exact value of a quantity (a string, or a YAML number)."""
    return _split(value)[0]


def canonical(value: object) -> str:
    """The quantity as the API server stores it: integral mantissa, largest suffix of the same family."""
    amount, suffix = _split(value)
    if suffix in _BINARY and (abs(amount) >= 1024 and amount.denominator == 1):  # noqa: PLR2004
        return _scale(amount, [(name, Fraction(2**power)) for name, power in _BINARY.items()], "")
    exponents = sorted(_DECIMAL.items(), key=lambda item: item[1])
    if suffix[:1] in ("e", "E") and suffix[1:]:
        scales = [(f"e{power}" if power else "", Fraction(10) ** power) for _, power in exponents]
    else:
        scales = [(name, Fraction(10) ** power) for name, power in exponents]
    return _scale(amount, scales, "0")


def _split(value: object) -> tuple[Fraction, str]:
    found = _PATTERN.match(str(value).strip())
    if found is None or isinstance(value, bool):
        raise QuantityError(_SHAPE)
    suffix = found["suffix"] or ""
    if suffix in _BINARY:
        factor = Fraction(2 ** _BINARY[suffix])
    else:
        power = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        factor = Fraction(10) ** power
    return Fraction(found["number"]) * factor, suffix


def _scale(amount: Fraction, scales: list[tuple[str, Fraction]], zero: str) -> str:
    if amount == 0:
        return "0"
    for suffix, factor in reversed(scales):
        if (amount / factor).denominator == 1:
            return f"{int(amount / factor)}{suffix}"
    smallest = scales[0]  # Finer than nano is rounded up, as the real parser does.
    return f"{-(-amount // smallest[1])}{smallest[0]}" if zero else str(int(amount))
