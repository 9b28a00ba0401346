"""Where a quantity is wrong: units by block, in sequence order over all ranks, and by row and head."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from parity.report.colours import colour, css, ink_on, share_of_scale
from parity.report.failures import STATES, Failure
from parity.report.numbers import number, times

CELL_HEIGHT, LEAST_CELL_WIDTH = 18, 22
LEFT, TOP = 46, 40  # room for the names of rows and of ranks
WIDTH_OF_A_CHARACTER = 7.5


@dataclass(frozen=True)
class Cell:
    """One block of one row and head. Where it is infinite a pattern is drawn instead of `fill`."""

    rank: int
    block: int
    row: int
    head: int
    units: float
    over: bool
    fill: str
    ink: str
    title: str

    @property
    def infinite(self) -> bool:
        return math.isinf(self.units)


@dataclass(frozen=True)
class HeatMap:
    """One quantity: `cells` line by line, a line being a row and head. Lengths are in CSS pixels."""

    quantity: str
    summary: str
    cells: list[Cell]
    spans: list[str]  # the tokens of each rank
    columns: list[str]
    blocks: int
    rows: int
    heads: int

    @cached_property
    def cell_width(self) -> int:
        """Wide enough for the name of a rank and its tokens to be written over its blocks."""
        widest = WIDTH_OF_A_CHARACTER * max(map(len, (*self.spans, f"rank {len(self.spans) - 1}"))) + 6
        return max(LEAST_CELL_WIDTH, math.ceil(widest / self.blocks))

    @property
    def width(self) -> int:
        return LEFT + len(self.columns) * self.cell_width + 2

    @property
    def height(self) -> int:
        return TOP + self.rows * self.heads * CELL_HEIGHT + 2

    def x(self, rank: int, block: int = 0) -> int:
        return LEFT + (rank * self.blocks + block) * self.cell_width

    def y(self, row: int, head: int = 0) -> int:
        return TOP + (row * self.heads + head) * CELL_HEIGHT

    def lines(self) -> Iterator[list[Cell]]:
        """The cells of each row and head, in sequence order."""
        for start in range(0, len(self.cells), len(self.columns)):
            yield self.cells[start : start + len(self.columns)]


def heat_map(failure: Failure, quantity: str, top: float) -> HeatMap:
    """The picture of one measured quantity. `top`: the multiple of the limit at the bright end of the scale."""
    measured, blocks = failure.quantities[quantity], failure.blocks(quantity)
    rows, heads = len(measured.units[0]), len(measured.units[0][0][0])
    cells = [
        _cell(failure, quantity, (rank, block, row, head), top)
        for row in range(rows)
        for head in range(heads)
        for rank in range(failure.ranks)
        for block in range(blocks)
    ]
    limit = f"{measured.limit:g}" + (f" ({measured.limit_row})" if measured.limit_row else "")
    over, worst = sum(cell.over for cell in cells), max(cells, key=lambda cell: cell.units)
    return HeatMap(
        quantity,
        f"{over} of {len(cells)} blocks are over the limit of {limit}. Worst: {worst.title}",
        cells,
        [_tokens(failure, quantity, rank) for rank in range(failure.ranks)],
        [_place(failure, quantity, rank, block) for rank in range(failure.ranks) for block in range(blocks)],
        blocks,
        rows,
        heads,
    )


def bright_end(failure: Failure) -> float:
    """The power of ten, at least 10, that holds every finite multiple of a limit in `failure`."""
    ratios = [
        units / measured.limit
        for measured in failure.wrong.values()
        for rank in measured.units
        for row in rank
        for block in row
        for units in block
    ]
    largest = max((ratio for ratio in ratios if math.isfinite(ratio)), default=0.0)
    return 10.0 ** max(1, math.ceil(math.log10(largest))) if largest > 0 else 10.0


def legend(top: float) -> list[tuple[str, str]]:
    """Colours from 1/100 of the limit to `top`, each with the multiple that it stands for."""
    decades = round(math.log10(top))
    step = max(1, math.ceil(decades / 4))
    over = [10.0**exponent for exponent in (*range(step, decades, step), decades)]
    entries = [(0.01, "1/100"), (0.1, "1/10"), (1.0, "limit"), *((ratio, times(ratio)) for ratio in over)]
    return [(css(colour(share_of_scale(ratio, top))), label) for ratio, label in entries]


def _cell(failure: Failure, quantity: str, place: tuple[int, int, int, int], top: float) -> Cell:
    rank, block, row, head = place
    measured = failure.quantities[quantity]
    units = measured.units[rank][row][block][head]
    ratio = units / measured.limit
    rgb = colour(share_of_scale(ratio, top))
    multiple = f", {times(ratio)} the limit" if math.isfinite(units) else ""
    title = f"{_place(failure, quantity, rank, block)}, row {row}, head {head}: {number(units)} units{multiple}"
    return Cell(rank, block, row, head, units, not units <= measured.limit, css(rgb), ink_on(rgb), title)


def _place(failure: Failure, quantity: str, rank: int, block: int) -> str:
    if quantity in STATES:
        return f"the copy on rank {rank}"
    return f"rank {rank}, tokens {_range(*failure.token_range(rank, block))}"


def _tokens(failure: Failure, quantity: str, rank: int) -> str:
    """What stands under the name of a rank."""
    if quantity in STATES:
        return "copy"
    return _range(rank * failure.tokens_per_rank, (rank + 1) * failure.tokens_per_rank - 1)


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"
