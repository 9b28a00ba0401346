"""A selector matches where all of its axes do, and says in words what it is."""

import pytest

from parity.tolerances.selector import Selector

TWO = Selector({"quantity": frozenset({"dv", "dk"}), "ranks": frozenset({8, 2})})


def test_it_matches_where_all_its_axes_do():
    assert TWO.matches({"quantity": "dk", "ranks": 2, "regime": "typical"})
    assert not TWO.matches({"quantity": "dk", "ranks": 4, "regime": "typical"})
    assert not TWO.matches({"quantity": "o", "ranks": 2, "regime": "typical"})
    assert Selector({}).matches({"quantity": "o"})


def test_a_point_without_one_of_its_axes_is_an_error():
    with pytest.raises(KeyError, match="ranks"):
        TWO.matches({"quantity": "dk"})


@pytest.mark.parametrize(
    ("axes", "overlap"),
    [
        ({"quantity": frozenset({"dk"})}, True),
        ({"quantity": frozenset({"o"})}, False),
        ({"regime": frozenset({"typical"})}, True),
        ({"quantity": frozenset({"dk"}), "ranks": frozenset({4})}, False),
        ({}, True),
    ],
)
def test_two_overlap_unless_an_axis_keeps_them_apart(axes, overlap):
    assert TWO.overlaps(Selector(axes)) == Selector(axes).overlaps(TWO) == overlap


def test_it_says_what_it_is():
    assert TWO.text == "quantity = dk or dv, ranks = 2 or 8"
    assert Selector({"ranks": frozenset({"all", 8, 2})}).text == "ranks = 2 or 8 or all"
    assert Selector({}).text == "everything"
