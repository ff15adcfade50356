"""Quantities: exact against an oracle, and every bad one refused with a remedy."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aliquot.units import (
    INT64_MAX,
    MIB,
    QuantityError,
    format_bytes,
    parse_bytes,
    parse_count,
    parse_percent,
    parse_quantity,
    to_mib,
)

SCALES = {
    **{
        suffix: Fraction(1024) ** power
        for power, suffix in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    },
    **{
        suffix: Fraction(10) ** power
        for suffix, power in {
            "n": -9,
            "u": -6,
            "m": -3,
            "k": 3,
            "M": 6,
            "G": 9,
            "T": 12,
            "P": 15,
            "E": 18,
        }.items()
    },
    **{
        f"{letter}{power}": Fraction(10) ** int(power)
        for letter in "eE"
        for power in ("0", "3", "+4", "-7", "018")
    },
}
WHOLE = st.integers(0, 10**20).map(str)
DIGITS = st.text("0123456789", max_size=12)


@given(whole=WHOLE, decimals=DIGITS, suffix=st.sampled_from(sorted(SCALES)), sign=st.sampled_from(["", "+"]))
@example(whole="9223372036854775807", decimals="", suffix="", sign="")
@example(whole="8", decimals="", suffix="Ei", sign="")
@example(whole="1", decimals="", suffix="E", sign="")
def test_every_quantity_is_read_exactly_or_refused_as_too_large(
    whole: str, decimals: str, suffix: str, sign: str
):
    """A number and its suffix are multiplied without rounding; only what exceeds int64 is refused."""
    text = f"{sign}{whole}.{decimals}{suffix}" if decimals else f"{sign}{whole}{suffix}"
    truth = (int(whole) + (Fraction(int(decimals), 10 ** len(decimals)) if decimals else 0)) * SCALES[suffix]
    if truth > INT64_MAX:
        with pytest.raises(QuantityError, match="64-bit"):
            parse_quantity(text)
    else:
        assert parse_quantity(text) == truth


@given(st.integers(0, INT64_MAX))
def test_bytes_are_written_so_that_they_are_read_back_exactly(size: int):
    """Formatting loses nothing, whatever the size."""
    assert parse_quantity(format_bytes(size)) == size
    assert size <= to_mib(size) * MIB < size + MIB


@given(st.one_of(st.integers(0, INT64_MAX), st.floats(1e-90, 1e18)))
def test_numbers_mean_what_their_author_wrote(number: float):
    """A YAML number is read as its decimal text, not as its nearest binary fraction."""
    assert parse_quantity(number) == Fraction(str(number))


@given(st.text(max_size=80))
def test_no_text_breaks_the_parser(text: str):
    """Whatever the text, the answer is an amount that Kubernetes can hold or a refusal."""
    try:
        value = parse_quantity(text)
    except QuantityError:
        return
    assert 0 <= value <= INT64_MAX


@pytest.mark.parametrize(
    "text",
    ["", " ", ".", "+", "-", "Gi", "1 Gi", " 1", "1\n", "1e9Ei", "1Ki2", "1e", "1e+", "0x10", "1_000", "1,5",
     "1K", "1mi", "inf", "nan", "\u0661", "1Gib", "--1", "1..2", "1.2.3", "e3"],
)  # fmt: skip
def test_what_is_no_quantity_is_refused(text: str):
    """Only Kubernetes' own grammar is accepted, and the refusal shows how to write one."""
    with pytest.raises(QuantityError, match=r"such as 8Gi|did you mean 1[KMG]i\?"):
        parse_quantity(text)


@pytest.mark.parametrize("value", [True, None, [], {}, float("nan"), float("inf"), b"1"])
def test_what_is_no_text_or_number_is_refused(value: object):
    """Other JSON values never become quantities by accident."""
    with pytest.raises(QuantityError):
        parse_quantity(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["1" * 65, 10**5000, "1e100", "1e-100", "1e999999999"],
    ids=lambda text: repr(text)[:9] if isinstance(text, str) else "int",
)
def test_monstrous_numbers_are_refused_before_any_arithmetic(text: str | int):
    """A text that would be expensive to compute is refused by its looks."""
    with pytest.raises(QuantityError):
        parse_quantity(text)


def test_zero_may_carry_any_sign():
    """Minus nothing is nothing, as Kubernetes reads it."""
    assert parse_quantity("-0") == parse_quantity("+0Gi") == 0


MEMORY = {
    "-1": "'-1' is negative; write 0 or more",
    "4096": "4096 is 4096 bytes; did you mean 4096Mi?",
    "0.1m": "0.1m is 0.0001 bytes; did you mean 1Mi?",
    "8m": "8m is 0.008 bytes; did you mean 8Mi?",
    "512Ki": "512Ki is 524288 bytes; did you mean 512Mi?",
    "0.1Gi": "0.1Gi is 107374182.4 bytes, no whole number; did you mean 103Mi?",
    "9Ei": "'9Ei' is more than a 64-bit number holds (8Ei); write a smaller one",
    "1e9Ei": "'1e9Ei' is no quantity; write a number with a suffix, such as 8Gi",
    "8GB": "'8GB' is no quantity; did you mean 8Gi?",
    "2g": "'2g' is no quantity; did you mean 2Gi?",
    "2GiB": "'2GiB' is no quantity; did you mean 2Gi?",
    "512 mb": "'512 mb' is no quantity; did you mean 512Mi?",
    ".5g": "'.5g' is no quantity; did you mean 0.5Gi?",
    "0.5": "0.5 is 0.5 bytes; did you mean 512Mi?",
    "2": "2 is 2 bytes; did you mean 2Gi?",
}


@pytest.mark.parametrize(("text", "sentence"), MEMORY.items())
def test_bad_memory_is_refused_with_the_remedy(text: str, sentence: str):
    """Each mistake people make with memory gets its own sentence."""
    with pytest.raises(QuantityError) as refused:
        parse_bytes(text)
    assert str(refused.value) == sentence


def test_memory_is_whole_bytes_from_one_mebibyte_on():
    """Nothing, and everything from 1Mi, is accepted."""
    assert parse_bytes("0") == 0
    assert parse_bytes(MIB) == parse_bytes("1Mi") == parse_bytes("1048576000m") == MIB
    assert parse_bytes("1.5Gi") == 1536 * MIB
    assert parse_bytes("8G") == 8 * 10**9


@pytest.mark.parametrize(
    ("text", "words"),
    [("0", "1 to 100"), ("101", "1 to 100"), ("50.5", "whole number"), ("30%", "write 30"),
     ("-1", "1 to 100"), ("3Ki", "1 to 100"), ("abc", "abc is no percentage"), ("", "an empty text is no percentage")],
)  # fmt: skip
def test_bad_percentages_are_refused(text: str, words: str):
    """A percentage is a whole number within its range, without a sign."""
    with pytest.raises(QuantityError, match=words):
        parse_percent(text)


def test_the_ends_of_the_percent_range_are_inside():
    """1 and 100 are percentages; another range can be given."""
    assert [parse_percent("1"), parse_percent(100), parse_percent("0", low=0)] == [1, 100, 0]


def test_counts_are_whole():
    """Half a card is refused as a count; a whole number may be written in any way."""
    assert parse_count("2") == parse_count("2000m") == 2
    with pytest.raises(QuantityError, match="counted whole"):
        parse_count("0.5")
