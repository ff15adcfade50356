"""The chart's admission policies speak of the names that the programs use: a new one is guarded, or a test fails."""

import ast
import json
import re
from pathlib import Path

from aliquot.api import names
from aliquot.dialects import load_dialects

ROOT = Path(__file__).parents[3]
TEMPLATES = ROOT / "deploy" / "charts" / "aliquot" / "templates" / "policies"
SHARED = (TEMPLATES / "_policies.tpl").read_text()
SLICES = (TEMPLATES / "slices.yaml").read_text()


def written(file: Path) -> set[str]:
    """The annotations that a module writes into pods, if it writes to the API server."""
    if not re.search(r'subresource="status"|\.bind_pod\(', file.read_text()):
        return set()
    keys = (
        key
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Dict)
        for key in node.keys
    )
    return {key.id for key in keys if isinstance(key, ast.Name) and key.id.endswith("_ANNOTATION")}


def test_what_the_scheduler_writes_into_pods_nobody_else_may():
    """Every annotation that a module writes which patches pods or binds them."""
    found = set().union(*map(written, (ROOT / "scheduler_ext").rglob("*.py")))
    grants = json.loads(re.search(r'define "aliquot\.policies\.grants" -\}\}\n(.*)\n', SHARED)[1])
    assert {getattr(names, one) for one in found} == set(grants)


def test_a_slice_is_what_the_webhook_takes_for_one():
    """By our resources, and by those of the dialect."""
    words = re.search(r"\$word := list (.*?) -\}\}", (TEMPLATES.parent / "_names.tpl").read_text())[1]
    ours = [f"aliquot.dev/{word}" for word in re.findall(r'"(.*?)"', words)]
    assert ours == list(names.DEFAULT_NAMES.slices)
    theirs = re.search(r"k in (\['nvidia.*?\])", SHARED)[1].replace("'", '"')
    (hami,) = load_dialects(["hami"])
    assert set(json.loads(theirs)) == set(hami.resources) - {hami.priority}
    assert names.DEFAULT_NAMES.mig_prefix.startswith("aliquot.dev/")


def test_paths_and_variables_are_ours():
    """The interceptor, the pages, and how a pod leaves LD_PRELOAD alone."""
    assert f'$library := "{names.LIBRARY_PATH}"' in SLICES
    assert f"['{names.INJECT_ANNOTATION}'] == '{names.INJECT_BY_FILE}'" in SLICES
    assert {f'"{names.CONTROL_ENV}"', f'"{names.USAGE_ENV}"'} <= set(re.findall(r'"\w+"', SLICES))
    assert f'list "{names.SCHEDULER_NAME}"' in SHARED
