"""Rows of two runs meet by implementation, dtype and quantity, and what wants attention stands first."""

import math
from collections.abc import Callable

import pytest

from parity.report.accuracy import Row
from parity.report.comparison import Change, Pair, compare, counts

MakeRow = Callable[..., Row]


def test_every_row_of_either_run_is_there_once(row: MakeRow) -> None:
    before = [row("o", 4.0), row("dq", 2.0), row("dk", 1.0, "gone")]
    after = [row("dq", 3.0), row("o", 4.0), row("dv", 1.0, "came")]
    pairs = compare(before, after)
    assert [(pair.key, pair.change) for pair in pairs] == [
        (("gone", "f64", "dk"), Change.ONLY_BEFORE),
        (("mine", "f64", "dq"), Change.WORSE),
        (("came", "f64", "dv"), Change.ONLY_AFTER),
        (("mine", "f64", "o"), Change.SAME),
    ]
    assert [pair.ratio for pair in pairs] == [None, 1.5, None, 1.0]
    assert counts(pairs) == [
        (change, 1) for change in (Change.ONLY_BEFORE, Change.WORSE, Change.ONLY_AFTER, Change.SAME)
    ]


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"units": 4.0}, {"units": 4.03}, Change.SAME),
        ({"units": 4.0}, {"units": 4.1}, Change.WORSE),
        ({"units": 4.0}, {"units": 3.9}, Change.BETTER),
        ({"units": 0.0}, {"units": 0.0}, Change.SAME),
        ({"units": 0.0}, {"units": 1.0}, Change.WORSE),
        ({"units": 4.0}, {"units": 99.0, "failed": 1}, Change.NOW_FAILS),
        ({"units": 99.0, "failed": 1}, {"units": 4.0}, Change.NOW_PASSES),
        ({"units": 99.0, "failed": 1}, {"units": math.inf, "failed": 1}, Change.WORSE),
        ({"units": math.inf, "failed": 1}, {"units": 99.0, "failed": 1}, Change.BETTER),
        ({"units": math.inf, "failed": 1}, {"units": math.inf, "failed": 1}, Change.SAME),
        ({"units": 4.0}, {"units": None}, Change.NO_LONGER_JUDGED),
        ({"units": None}, {"units": 4.0}, Change.NEWLY_JUDGED),
        ({"units": None}, {"units": None}, Change.SAME),
    ],
)
def test_what_became_of_a_row(row: MakeRow, before: dict, after: dict, change: Change) -> None:
    assert Pair(row("o", **before), row("o", **after)).change == change


def test_a_larger_limit_is_named_even_where_units_fell(row: MakeRow) -> None:
    wide = row("o", 3.0, limit=64.0)
    assert Pair(row("o", 4.0), wide).change == Change.LARGER_LIMIT
    assert Pair(row("o", 4.0), wide).limits_differ
    assert Pair(wide, row("o", 3.0)).change == Change.SAME
    assert Pair(wide, row("o", 3.0)).limits_differ


def test_the_largest_ratio_comes_first_within_a_change(row: MakeRow) -> None:
    before = [row(q, 1.0) for q in ("o", "dq", "dk")]
    after = [row("o", 2.0), row("dq", 4.0), row("dk", 3.0)]
    assert [pair.ratio for pair in compare(before, after)] == [4.0, 3.0, 2.0]


def test_better_and_worse_differ_in_more_than_colour() -> None:
    marks = {direction: {c.mark for c in Change if c.direction == direction} for direction in ("worse", "better")}
    assert marks == {"worse": {"▲"}, "better": {"▼"}}
