"""The pages of this repository lead where they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
FOLDERS = "aliquot|arbiter|bench|deploy|docs|examples|libshim|plugin|sandbox|scheduler_ext|tests|webhook"
NAMED = re.compile(rf"(?:^|[\s`\"(])((?:{FOLDERS})/[\w./*-]*\w)")


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    """Every relative link leads to a file, and to a heading of it where it names one."""
    for path, anchor in LINK.findall(page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_are_there(page: Path):
    """Every file of ours that a page names, in a command or in passing, is in the tree, but for what builds make."""
    named = [name for name in NAMED.findall(page.read_text()) if "/build/" not in name]
    missing = [name for name in named if not list(ROOT.glob(name))]
    assert missing == []


def test_every_page_of_the_docs_is_listed():
    """In the list of pages, once."""
    listed = [path for path, _ in LINK.findall((ROOT / "docs/README.md").read_text()) if path.endswith(".md")]
    own = [path for path in listed if "/" not in path]
    assert sorted(own) == sorted(page.name for page in ROOT.glob("docs/*.md") if page.name != "README.md")
