"""The arrows: parity imports implementations and oracles, and nothing else imports across. Names that select ranks."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("oracles", "implementations", "parity")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]

# `-k shard1` is how people select a rank, so nothing but the gate's items may match it.
SELECTS_RANKS = "shard"


def imported(source: str, package: str) -> set[str]:
    """The top-level packages that a file of `package` imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(package if node.level else str(node.module).partition(".")[0])
    return found


def offenders(package: str, forbidden: set[str]) -> dict[str, set[str]]:
    paths = [path for path in FILES if path.is_relative_to(ROOT / package)]
    assert paths
    found = {
        str(path.relative_to(ROOT)): imported(path.read_text(encoding="utf-8"), package) & forbidden for path in paths
    }
    return {path: wrong for path, wrong in found.items() if wrong}


def test_the_oracles_know_nothing_of_jax_or_of_what_they_judge():
    assert offenders("oracles", {"jax", "jaxlib", "flax", "implementations", "parity"}) == {}


def test_the_implementations_know_nothing_of_the_oracles_or_of_the_suite():
    assert offenders("implementations", {"oracles", "parity"}) == {}


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [("oracles", ("jax", "implementations", "parity")), ("implementations", ("oracles", "parity"))],
)
def test_nor_do_they_load_it_by_another_way(package, forbidden):
    """All modules but the tests in a fresh process: what `importlib` or a dependency brings in is seen too."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in FILES
        if path.is_relative_to(ROOT / package) and not path.name.startswith(("test_", "conftest", "__init__"))
    ]
    program = f"import sys, {', '.join(modules)}; print(*[m for m in {forbidden} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (found.stdout.strip(), found.returncode) == ("", 0), found.stderr


def test_the_walk_sees_imports_of_every_kind():
    """The tests above pass where nothing is found, so that finding must be shown to work."""
    source = """
import numpy as np, jax.numpy
from parity.unit import units
def f():
    from . import x
    import implementations
"""
    assert imported(source, "oracles") == {"numpy", "jax", "parity", "oracles", "implementations"}


def test_no_file_and_no_test_has_a_name_that_selects_ranks():
    files = [str(path.relative_to(ROOT)) for path in FILES if SELECTS_RANKS in str(path.relative_to(ROOT))]
    functions = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and path.name.startswith("test_")
        and SELECTS_RANKS in node.name
    ]
    assert files == functions == []


def test_no_id_but_those_of_the_gate_selects_ranks(request):
    others = [item.nodeid for item in request.session.items if "item" not in getattr(item, "fixturenames", ())]
    assert [nodeid for nodeid in others if SELECTS_RANKS in nodeid] == []
