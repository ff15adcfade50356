"""What people read of findings."""

from aliquot.doctor.finding import Finding, Result, some
from aliquot.doctor.report import lines, summary

FINDINGS = (
    Finding("a", "first", Result.OK, "it is well"),
    Finding("b", "first", Result.WARNING, "it ends soon.", "Renew it."),
    Finding("c", "second", Result.NOT_CHECKED, "you lack the right to list pods"),
    Finding("d", "second", Result.FAILURE, "word " * 40, f"kubectl {'x' * 90} now"),
)


def test_the_worst_comes_first():
    """Groups by their worst finding, findings within; and the sum at the end."""
    told = list(lines(FINDINGS))
    assert [line for line in told if line and not line.startswith(" ")] == [
        "Second",
        "First",
        "1 failure, 1 warning, 1 not checked, 1 ok",
    ]
    results = [line.split()[0] for line in told if line.startswith("  ") and line[2] != " "]
    assert results == ["FAILURE", "not", "warning", "ok"]


def test_lines_fit_but_words_are_never_broken():
    """A command that is longer than a line stays whole, to be copied."""
    told = list(lines(FINDINGS, 80))
    assert any("x" * 90 in line for line in told)
    assert all(len(line) <= 80 for line in told if "x" * 90 not in line)


def test_many_names_are_counted():
    """The first ones are shown."""
    assert some("ab") == "a, b"
    assert some("fedcbaa") == "a, b, c, d and 2 more"
    assert summary(FINDINGS[:1] * 2) == "2 ok"
