"""What `--implementation` accepts, and what it says to the rest."""

import re
import sys
from pathlib import Path

import pytest

from parity.load import CannotLoad, load

GOOD = """
from implementations import Implementation

def call(q, k, v, g, beta, initial_state, *, scale, chunk_size):
    return v, initial_state

ONE = Implementation("one", call)
TWO = Implementation("two", call)
BOTH = [ONE, TWO]
EMPTY = ()
MIXED = (ONE, call)
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(GOOD)
    return path


def test_a_name_is_one_implementation_or_a_sequence(module: Path) -> None:
    assert [i.name for i in load([f"{module}:ONE"])] == ["one"]
    assert [i.name for i in load([f"{module}:BOTH"])] == ["one", "two"]
    assert [i.name for i in load([f"{module}:TWO", f"{module}:ONE"])] == ["two", "one"]
    assert load([]) == ()


def test_a_package_module(module: Path) -> None:
    assert [i.name for i in load(["implementations.chunked:CHUNKED"])] == ["chunked"]
    names = [i.name for i in load(["implementations:ALL"])]
    assert names == ["sequential", "chunked", "two_phase", "three_phase", "pallas"]


def test_a_file_imports_its_neighbours_and_leaves_the_path_alone(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_a_kernel.py").write_text(GOOD)
    (tmp_path / "mine.py").write_text("from neighbour_of_a_kernel import ONE")
    before = list(sys.path)
    assert load([f"{tmp_path / 'mine.py'}:ONE"])[0].name == "one"
    assert sys.path == before


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("kernels.py", "expected FILE.py:NAME or package.module:NAME"),
        (":ONE", "expected FILE.py:NAME"),
        ("{module}:", "expected FILE.py:NAME"),
        ("{module}:ONE.two", "expected FILE.py:NAME"),
        ("nowhere/kernels.py:ONE", "there is no file"),
        ("no_such_package.module:ONE", "there is no module no_such_package"),
        ("implementations.no_such_module:ONE", "there is no module implementations.no_such_module"),
        ("{module}:THREE", "its implementations are ONE, TWO"),
        ("{module}:call", "must be an implementations.Implementation"),
        ("{module}:EMPTY", "non-empty sequence"),
        ("{module}:MIXED", "must be an implementations.Implementation"),
    ],
)
def test_a_spec_that_names_nothing_to_run(module: Path, spec: str, says: str) -> None:
    with pytest.raises(CannotLoad, match=re.escape(says)):
        load([spec.format(module=module)])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_dependency", "No module named 'no_such_dependency'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def f(:", "SyntaxError"),
        (
            "from implementations import Implementation\nONE = Implementation('one', lambda q, k, v: (v, q))",
            "cannot be called as (q, k, v, g, beta, initial_state, *, scale, chunk_size)",
        ),
        ("from implementations import Implementation\nONE = Implementation('One', print)", "[a-z][a-z0-9_]*"),
    ],
)
def test_a_module_that_raises_is_shown_with_its_own_traceback(tmp_path: Path, source: str, says: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)
    with pytest.raises(CannotLoad) as raised:
        load([f"{path}:ONE"])
    assert says in str(raised.value)
    assert "broken.py" in str(raised.value)
    assert "parity/load.py" not in str(raised.value)


def test_two_of_one_name_are_refused(module: Path) -> None:
    with pytest.raises(CannotLoad, match="more than one implementation is called one"):
        load([f"{module}:ONE", f"{module}:BOTH"])
