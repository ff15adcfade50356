"""What runs the walk-throughs: it reads every step, and lets nothing pass that is not as the document says."""

import subprocess
from pathlib import Path

import pytest

from aliquot.sandbox.cluster.processes import wait_for
from tests.cluster.walkthroughs.document import Document, DocumentError, read_document
from tests.cluster.walkthroughs.output import difference, matches
from tests.cluster.walkthroughs.walk import Shell, Walk, WalkError

PAGE = """
# A page

First:

```console
$ echo one   # of them
one
$ printf 'a\\n' \\
    'b\\n'
```

Build it (not run by the tests, which have no registry):

```console
$ false
```

```yaml
$ no: command
```
"""


@pytest.fixture
def shell(tmp_path: Path):
    """A shell in an empty directory."""
    with Shell(tmp_path, {}) as running:
        yield running


def page(tmp_path: Path, text: str) -> Document:
    """A document of this text."""
    path = tmp_path / "page.md"
    path.write_text(text)
    return read_document(path)


def walk(tmp_path: Path, shell: Shell, *lines: str, patience_s: float = 0.0) -> Walk:
    """Go through a document of one block."""
    text = "\n".join(["```console", *lines, "```", ""])
    gone = Walk(page(tmp_path, text), shell, {"gpu-1": "localhost"}, patience_s)
    gone.run()
    return gone


def test_steps_are_read_with_their_lines(tmp_path: Path):
    """Commands over several lines too; what is marked is kept apart, and other blocks are no commands."""
    read = page(tmp_path, PAGE)
    assert [(step.command.split()[0], step.line, step.expected) for step in read.run] == [
        ("echo", 7, ("one",)),
        ("printf", 9, ()),
    ]
    assert read.run[1].command == "printf 'a\\n' \\\n    'b\\n'"
    assert read.not_run == ("false",)


def test_a_document_within_a_command_belongs_to_it(tmp_path: Path, shell: Shell):
    """Up to its word; what follows is what is printed."""
    gone = walk(
        tmp_path, shell, "$ cat <<END | tr a-z A-Z", "one", "two", "END", "ONE", "TWO", "$ echo $?", "0"
    )
    assert [step.expected for step in gone.document.run] == [("ONE", "TWO"), ("0",)]


@pytest.mark.parametrize("text", ["no block\n", "```console\none\n```\n", "```console\n```\n"])
def test_a_page_without_a_command_is_an_error(tmp_path: Path, text: str):
    """So that none passes by having nothing to run."""
    with pytest.raises(DocumentError, match=r"page\.md"):
        page(tmp_path, text)


def test_a_missing_step_is_an_error(tmp_path: Path):
    """One that is not run is as good as none, and the order counts."""
    read = page(tmp_path, PAGE)
    read.require("echo", "printf")
    for missing in (("false",), ("printf", "echo")):
        with pytest.raises(DocumentError, match=missing[-1]):
            read.require(*missing)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (["NAME  AGE", "a-7w5xk   25s"], "NAME        AGE\na-zv6hn     3m12s\n"),
        (["web-5f7c9b6c4-8kx2j 1/1"], "\nweb-7c8d5b9f6b-4lq9s   1/1\n\n"),
        (["first", "...", "last"], "first\nsecond\nthird\nlast\n"),
        (["first", "...", "last"], "first\nlast\n"),
        (["card GPU-... has 16Gi"], "card GPU-0-1 has 16Gi\n"),
        (["aliquot: run kx7f: card 0"], "aliquot: run d2zx: card 0\n"),
    ],
)
def test_what_may_differ_may_differ(expected: list[str], printed: str):
    """Blanks, ages, random names, and what dots stand for."""
    assert matches(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (["a 1/1 Running"], "a 0/1 Running\n"),
        (["one"], "one\ntwo\n"),
        (["one", "two"], "one\n"),
        (["one"], ""),
        (["aliquot-agent"], "aliquot-certs\n"),
        (["a.b"], "axb\n"),
        (["run kx7f: card 0"], "run kx7f2: card 0\n"),
        (["limit 2048 MiB"], "limit 4096 MiB\n"),
        (["first", "...", "last"], "first\nsecond\n"),
        (["wait 30s"], "wait long\n"),
    ],
)
def test_what_may_not_differ_fails(expected: list[str], printed: str):
    """With a difference that shows it."""
    assert not matches(expected, printed)
    assert difference(expected, printed)


def test_a_difference_shows_what_differs_alone():
    """Lines that are the same but for an age are no difference."""
    shown = difference(["pod-7w5xk 25s", "two 1/1"], "pod-zv6hn 3s\ntwo 0/1\n")
    assert "-two 1/1" in shown
    assert "+two 0/1" in shown
    assert " pod-zv6hn 3s" in shown


def test_a_walk_keeps_its_shell(tmp_path: Path, shell: Shell):
    """Variables stay for the next command; what has another name here is called as in the document."""
    gone = walk(
        tmp_path, shell, "$ NODE=gpu-1", "$ echo $NODE", "gpu-1", "$ echo $NODE | tr a-z A-Z", "LOCALHOST"
    )
    assert gone.told == ["\n", "gpu-1\n\n", "LOCALHOST\n\n"]


@pytest.mark.parametrize(
    "lines",
    [
        ("$ echo one", "two"),
        ("$ echo one >&2", "two"),
        ("$ false",),
        ("$ echo error: refused", "error: refused"),
        ("$ cat nothing", "cat: another: No such file or directory"),
    ],
)
def test_a_walk_ends_where_a_step_differs(tmp_path: Path, shell: Shell, lines: tuple[str, ...]):
    """Wrong output, wrong status, an error that is none: with the line of the document and the command."""
    with pytest.raises(WalkError, match=r"page\.md:2: (echo|false|cat)"):
        walk(tmp_path, shell, *lines)


def test_an_error_that_is_shown_has_to_come(tmp_path: Path, shell: Shell):
    """It is what the document is about then."""
    walk(tmp_path, shell, "$ echo 'Error: no'; false", "Error: no")


def test_a_command_that_looks_is_repeated(tmp_path: Path, shell: Shell):
    """Until it prints what is expected, and no longer than patience lasts."""
    look = "$ kubectl get pods"
    shell.run("kubectl() { echo x >> looks; test $(wc -l < looks) -gt 2 && echo Running || echo Pending; }")
    walk(tmp_path, shell, look, "Running", patience_s=30)
    with pytest.raises(WalkError, match=r"\+Running"):
        walk(tmp_path, shell, look, "Succeeded", patience_s=0.2)


@pytest.mark.slow
def test_a_command_that_does_not_end_is_told(shell: Shell):
    """It is named, with what it has printed so far."""
    with pytest.raises(WalkError, match=r"(?s)echo here; sleep 100.*here"):
        shell.run("echo here; sleep 100", 5)


def test_nothing_of_a_shell_outlives_it(tmp_path: Path):
    """Background jobs neither."""
    with Shell(tmp_path, {}) as running:
        running.run("sleep 1000 & echo $! > pid")
    pid = (tmp_path / "pid").read_text().strip()
    wait_for("the job to end", lambda: state_of(pid) in ("", "Z"))


def state_of(pid: str) -> str:
    """What the kernel says of a process; empty where it is gone."""
    shown = subprocess.run(["ps", "-o", "state=", pid], capture_output=True, text=True, check=False)
    return shown.stdout.strip()
