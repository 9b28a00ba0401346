"""No environment variable softens anything: the suite reads these, and decides nothing by them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for package in ("oracles", "implementations", "parity")
    for path in sorted((ROOT / package).rglob("*.py"))
    if not path.name.startswith("test_")
]
# A file to append tables to; what a ledger records about how jax ran; which chips of a TPU this process may use.
READ = {
    "parity/faults/plugin.py": {"GITHUB_STEP_SUMMARY"},
    "parity/report/reporter.py": {"GITHUB_STEP_SUMMARY"},
    "parity/tolerances/provenance.py": {"XLA_FLAGS", "LIBTPU_INIT_ARGS"},
    "parity/tpu/chips.py": {"TPU_VISIBLE_CHIPS"},
}
ANYTHING = "anything"


def variables(source: str) -> set[str]:
    """The variables that `os.environ.get("NAME")` reads; `ANYTHING` for every other way to the environment."""
    tree = ast.parse(source)
    named, touched = [], 0
    for node in ast.walk(tree):
        is_get = isinstance(node, ast.Call) and ast.unparse(node.func) == "os.environ.get"
        if is_get and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            named.append(str(node.args[0].value))
        touched += isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv", "getenvb")
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "posix"):
            touched += any(x.name in ("environ", "environb", "getenv", "getenvb", "*") for x in node.names)
    return {*named, *([ANYTHING] if touched > len(named) else [])}


def test_only_these_are_read():
    found = {str(path.relative_to(ROOT)): variables(path.read_text(encoding="utf-8")) for path in FILES}
    assert {path: names for path, names in found.items() if names} == READ


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 1", set()),
        ("import os\nos.environ.get('A')\nos.environ.get('B')", {"A", "B"}),
        ("import os\nos.environ.get('A', 'default')", {ANYTHING}),
        ("import os\nos.environ.get(name)", {ANYTHING}),
        ("import os\nos.environ['A']", {ANYTHING}),
        ("import os\nos.environ.get('A')\ndict(os.environ)", {"A", ANYTHING}),
        ("import os\nos.getenv('A')", {ANYTHING}),
        ("import os as system\nsystem.environ['A']", {ANYTHING}),
        ("from os import environ\nenviron['A']", {ANYTHING}),
        ("from os import path, getenv as g\ng('A')", {ANYTHING}),
        ("from os import *", {ANYTHING}),
    ],
)
def test_every_way_to_read_one_is_seen(source, found):
    assert variables(source) == found
