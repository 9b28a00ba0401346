"""Files of expectations: what they may say, which items they speak of, and what contradicts them."""

import re

import numpy as np
import pytest

import implementations
from implementations.contract import Implementation
from implementations.sequential import sequential
from parity.matrix import GATE, Case, Item, cases, items
from parity.problem import Problem
from parity.shapes import SHORT
from parity.tolerances.entries import BadTable
from parity.tolerances.expectations import expectation_of, load, require_used
from parity.verdict import Finding

GROUNDS = 'reason = "their kernel sums in bf16"\nissue = "example.org/kernels#12"\n'
MATRIX = items(cases(implementations.ALL, GATE))
ITEM = Item(Case(implementations.ALL[0], Problem("typical", SHORT, "f64", seed=3), 1), 0, "dk")


def row(kind="xfail", units=None, grounds=GROUNDS, **axes):
    axes = axes or {"quantity": '"dk"'}
    lines = [f'kind = "{kind}"', *(f"{axis} = {value}" for axis, value in axes.items())]
    return "\n".join(["[[expected]]", *lines, *([f"units = {units}"] if units else []), grounds])


@pytest.fixture
def read(tmp_path):
    def write(*texts):
        paths = [tmp_path / f"{i}.toml" for i, _ in enumerate(texts)]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return load(paths)

    return write


def finding(units, limit=32.0, failure=None):
    return Finding(0, "dk", np.full((1, 1, 1), units), limit, "f64", 0.1, None, failure)


# Which items


@pytest.mark.parametrize(
    ("axis", "given", "matches"),
    [
        ("implementation", f'"{implementations.ALL[0].name}"', True),
        ("implementation", '"another"', False),
        ("dtype", '["f32", "f64"]', True),
        ("dtype", '"f32"', False),
        ("quantity", '"dk"', True),
        ("quantity", '"dv"', False),
        ("regime", '"typical"', True),  # of every seed
        ("regime", '"tiny_keys"', False),
        ("shape", '["short", "wide"]', True),
        ("shape", '"ragged"', False),
        ("ranks", "1", True),
        ("ranks", "[2, 8]", False),
        ("rank", "0", True),
        ("rank", "[1, 2]", False),
    ],
)
def test_a_row_speaks_of_the_items_that_its_axes_match(read, axis, given, matches):
    rows = read(row(**{axis: given}))
    assert (expectation_of(ITEM, rows) is not None) == matches


def test_rows_of_several_files_hold_together(read):
    rows = read(row(quantity='"o"'), row("not_applicable", quantity='"dk"') + row(quantity='"dv"'))
    assert [x.kind for x in rows] == ["xfail", "not_applicable", "xfail"]
    assert rows[2].where.endswith("1.toml: expected 2")
    assert expectation_of(ITEM, rows) is rows[1]
    assert expectation_of(ITEM, ()) is None


# What contradicts


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (finding(40.0), None),
        (finding(50.0), None),
        (finding(50.1), "more than the 40 to 50 units that .*0.toml: expected 1 expects"),
        (finding(np.inf), "more than the 40 to 50 units"),
        (finding(np.inf, failure="dk must be float32"), "more than the 40 to 50 units"),
        (finding(39.9), "it improved to 39.9 units, where 40 to 50 were expected: tighten the bracket of .*0.toml"),
        (finding(1.0), "it improved to 1 units"),
        (finding(45.0, limit=48.0), "it improved to 45 units"),  # within the limit of some platform
    ],
)
def test_a_deviation_is_a_bracket(read, found, says):
    (expected,) = read(row("deviation", "[40, 50]"))
    contradiction = expected.contradicted_by(found)
    assert contradiction is None if says is None else re.match(says, contradiction)


@pytest.mark.parametrize(
    ("found", "contradicts"),
    [
        (finding(33.0), False),
        (finding(np.inf), False),
        (finding(np.inf, failure="it raised"), False),
        (finding(32.0), True),
    ],
)
def test_what_is_expected_to_fail_must_fail(read, found, contradicts):
    (expected,) = read(row("xfail"))
    contradiction = expected.contradicted_by(found)
    assert contradiction is None if not contradicts else "it was expected to fail, and passes" in contradiction


# What a file may not say


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file: expected must be given"),
        ("[expected]\n", "expected must be rows that begin with [[expected]]"),
        (row() + "[more]\n", "the file: more: no such key"),
        (row("ignore"), "expected 1: kind must be one of deviation, xfail, not_applicable; got 'ignore'"),
        (row().replace("kind", "sort"), "kind must be one of"),
        (row("deviation"), "units must be given"),
        (row("xfail", "[40, 50]"), "units: no such key"),
        (row("deviation", "40"), "units must be a bracket [low, high]; got 40"),
        (row("deviation", "[40, 50, 60]"), "units must be a bracket [low, high]"),
        (row("deviation", "[50, 40]"), "units must be a bracket [low, high] with low < high"),
        (row("deviation", "[40, inf]"), "units must be a positive, finite number of units; got inf"),
        (row("deviation", "[nan, 50]"), "units must be a positive, finite number of units; got nan"),
        (row(platform='"cpu"'), "platform: no such key"),
        (row(ranks="3"), "ranks 3 is not known; known are 1, 2, 4, 5, 8"),
        (row(rank="8"), "rank 8 is not known"),
        (row(rank="true"), "rank True is not known"),
        (row(shape='"tall"'), "shape 'tall' is not known; known are ragged"),
        (row(grounds=GROUNDS), None),
        ("[[expected]]\nkind = 'xfail'\n" + GROUNDS, "it speaks of everything"),
        (row(grounds='reason = "x"\n'), "issue must be given"),
        (row(grounds='issue = "x"\n'), "reason must be given"),
        (row(grounds='reason = ""\nissue = "x"\n'), "reason must be a text that says something"),
        (row(quantity='"dk"') + row(dtype='"f64"'), "0.toml: expected 1 and "),
    ],
)
def test_what_is_not_known_is_refused(read, text, says):
    if says is None:
        assert len(read(text)) == 1
        return
    with pytest.raises(BadTable, match=re.escape(says)):
        read(text)


def test_rows_of_two_files_may_not_overlap(read):
    with pytest.raises(BadTable, match=r"0.toml: expected 1 and .*1.toml: expected 1 overlap"):
        read(row(quantity='"dk"'), row(quantity='["dk", "dv"]'))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadTable, match=r"nowhere.toml: it cannot be read"):
        load([tmp_path / "nowhere.toml"])


# Against the matrix


def test_a_row_that_matches_no_item_is_refused(read):
    require_used(read(row(ranks="8", rank="7")), MATRIX)
    with pytest.raises(BadTable, match=r"0.toml: expected 1: no item of the matrix has ranks = 4, rank = 7"):
        require_used(read(row(ranks="4", rank="7")), MATRIX)


def test_a_deviation_within_the_limit_is_refused(read):
    mine = Implementation("mine", sequential)
    matrix = items(cases([mine]))
    require_used(read(row("deviation", "[33, 50]", dtype='"f64"')), matrix)
    with pytest.raises(BadTable, match=r"units begin at 32, within the limit 32 of mine-f64-"):
        require_used(read(row("deviation", "[32, 50]", dtype='"f64"')), matrix)
    require_used(read(row("deviation", "[3, 50]", dtype='"bf16"', quantity='"o"')), matrix)
    with pytest.raises(BadTable, match=r"units begin at 3, within the limit 32 of mine-bf16-"):
        require_used(read(row("deviation", "[3, 50]", dtype='"bf16"', quantity='["o", "dg"]')), matrix)


def test_a_row_that_speaks_of_nothing_that_is_judged_is_refused(read):
    matrix = items(cases([Implementation("mine", sequential, arithmetic={"f32": "f32"})]))
    for kind, units in (("deviation", "[1, 2]"), ("xfail", None), ("not_applicable", None)):
        with pytest.raises(BadTable, match="not applicable as it is: no arithmetic is claimed for f64"):
            require_used(read(row(kind, units, dtype='"f64"')), matrix)
