"""Every block has its cell in its place, with a colour in order and a mark where it is over the limit."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from parity.report.colours import colour, contrast, css, luminance, share_of_scale
from parity.report.failures import Failure, Measured
from parity.report.heat_map import bright_end, heat_map, legend


def test_cells_stand_in_sequence_order_line_by_line(failure: Failure) -> None:
    found = heat_map(failure, "o", bright_end(failure))
    lines = list(found.lines())
    assert [(line[0].row, line[0].head) for line in lines] == [(row, head) for row in range(2) for head in range(3)]
    for line in lines:
        assert [(cell.rank, cell.block) for cell in line] == [(rank, block) for rank in range(3) for block in range(2)]
        assert {(cell.row, cell.head) for cell in line} == {(line[0].row, line[0].head)}
    places = {(found.x(cell.rank, cell.block), found.y(cell.row, cell.head)) for cell in found.cells}
    assert len(places) == len(found.cells) == 36
    assert max(x for x, _ in places) + found.cell_width <= found.width
    assert found.spans == ["0-99", "100-199", "200-299"]


def test_a_cell_says_what_it_is(failure: Failure) -> None:
    found = heat_map(failure, "o", bright_end(failure))
    titles = {(cell.rank, cell.block, cell.row, cell.head): cell for cell in found.cells}
    assert titles[1, 1, 0, 1].title == "rank 1, tokens 164-199, row 0, head 1: 64 units, 2x the limit"
    assert titles[1, 1, 0, 1].over
    assert titles[2, 0, 1, 1].title == "rank 2, tokens 200-263, row 1, head 1: inf units"
    assert titles[2, 0, 1, 1].infinite
    assert not titles[0, 0, 0, 1].over
    assert found.summary.startswith("8 of 36 blocks are over the limit of 32 (f64). Worst: rank 2, tokens 200-263")


def test_a_state_has_one_copy_a_rank(failure: Failure) -> None:
    found = heat_map(failure, "final_state", bright_end(failure))
    assert len(found.cells) == 3 * 2 * 3
    assert found.spans == ["copy"] * 3
    assert found.columns[2] == "the copy on rank 2"


def test_one_token_is_no_range() -> None:
    one = Measured(1.0, [[[[2.0]]]])
    failure = Failure("case", "mine", "f64", "typical", "single", 1, 1, 16, "", {"o": one})
    assert heat_map(failure, "o", 10.0).columns == ["rank 0, tokens 0"]


@pytest.mark.parametrize(("units", "top"), [(33.0, 10.0), (32.0 * 999, 1e3), (32.0 * 1001, 1e4), (math.inf, 10.0)])
def test_the_bright_end_holds_the_largest_finite_units(failure: Failure, units: float, top: float) -> None:
    one = replace(failure, ranks=1, tokens=1, quantities={"o": Measured(32.0, [[[[units]]]])})
    assert bright_end(one) == top


def test_a_result_that_is_far_beyond_all_others_still_has_an_end(failure: Failure) -> None:
    one = replace(failure, ranks=1, tokens=1, quantities={"o": Measured(2.0, [[[[1.7e308, 3.0]]]])})
    assert heat_map(one, "o", bright_end(one)).cells[0].fill == css(colour(1.0))


def test_the_scale_rises_and_has_an_edge_at_the_limit() -> None:
    ratios = [0.0, 0.001, 0.01, 0.1, 0.5, 1.0, 1.0000001, 2.0, 10.0, 1e3, 1e6]
    shares = [share_of_scale(ratio, 1e6) for ratio in ratios]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1], share_of_scale(1e9, 1e6)) == (0.0, 1.0, 1.0)
    assert shares[6] - shares[5] > 0.15


def test_brighter_is_worse_without_colour() -> None:
    luminances = [luminance(colour(i / 200)) for i in range(201)]
    assert all(a < b for a, b in pairwise(luminances))
    assert contrast(colour(share_of_scale(1.0, 10.0)), colour(share_of_scale(1.01, 10.0))) > 1.3


def test_marks_can_be_seen_on_every_colour(failure: Failure) -> None:
    o = Measured(32.0, [[[[32.0 * 10 ** (i / 10) for i in range(60)]]]])
    for cell in heat_map(replace(failure, ranks=1, tokens=1, quantities={"o": o}), "o", 1e6).cells:
        ink, fill = (
            tuple(int(x[i : i + 2], 16) for i in (1, 3, 5)) for x in (cell.ink.ljust(7, cell.ink[1]), cell.fill)
        )
        assert contrast(ink, fill) > 4.5


@pytest.mark.parametrize(("top", "last"), [(10.0, "10x"), (1e15, "1e+15x")])
def test_the_legend_ends_at_the_bright_end(top: float, last: str) -> None:
    entries = legend(top)
    assert [label for _, label in entries][:3] == ["1/100", "1/10", "limit"]
    assert entries[-1] == (css(colour(1.0)), last)
    assert len(entries) <= 8
