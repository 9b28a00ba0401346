"""What is kept of a failing case: the message, and the units of every quantity on every rank."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from parity.unit import BLOCK

# One copy a rank, and no tokens. (parity/run.py has the longer list, and takes jax to import.)
STATES = ("final_state", "dh0")


# Failing cases that a page shows; the others are counted, and stand in failures.json.
MOST_DRAWN = 20


@dataclass(frozen=True)
class Measured:
    """One quantity of a case: `units[rank][row][block][head]`, a block being 64 tokens within the rank.

    Where nothing could be measured `not_measured` says why, and `units` are infinite and have no shape of their own.
    """

    limit: float
    units: list[list[list[list[float]]]]
    limit_row: str | None = None
    not_measured: str | None = None

    @property
    def worst(self) -> float:
        return max(x for rank in self.units for row in rank for block in row for x in block)

    @property
    def passes(self) -> bool:
        return self.not_measured is None and self.worst <= self.limit


@dataclass(frozen=True)
class Failure:
    """One failing case, as failures.json holds it. `tokens` is T, over all ranks.

    Raises ValueError where `quantities` do not fit the ranks and the tokens: a picture of them would lie.
    """

    case: str
    implementation: str
    dtype: str
    regime: str
    shape: str
    ranks: int
    tokens: int
    chunk_size: int
    message: str
    quantities: dict[str, Measured]

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.tokens < self.ranks:
            raise ValueError(f"{self.tokens} tokens cannot be split over {self.ranks} ranks")
        for quantity, measured in self.quantities.items():
            if not measured.limit > 0:
                raise ValueError(f"{quantity} has a limit of {measured.limit:g}; expected more than 0")
            if measured.not_measured is None:
                _check_blocks(quantity, measured.units, self.ranks, self.blocks(quantity))

    @property
    def tokens_per_rank(self) -> int:
        return self.tokens // self.ranks

    def blocks(self, quantity: str) -> int:
        """Blocks a rank."""
        return 1 if quantity in STATES else -(-self.tokens_per_rank // BLOCK)

    def token_range(self, rank: int, block: int) -> tuple[int, int]:
        """The first and the last token of a block, counted over all ranks."""
        first = rank * self.tokens_per_rank + block * BLOCK
        return first, min(first + BLOCK, (rank + 1) * self.tokens_per_rank) - 1

    @property
    def wrong(self) -> dict[str, Measured]:
        """The quantities over their limit, furthest first."""
        wrong = [(quantity, measured) for quantity, measured in self.quantities.items() if not measured.passes]
        return dict(sorted(wrong, key=lambda entry: -entry[1].worst / entry[1].limit))

    @property
    def right(self) -> dict[str, Measured]:
        """The quantities within their limit."""
        return {quantity: measured for quantity, measured in self.quantities.items() if measured.passes}


def worst_first(failures: Iterable[Failure]) -> list[Failure]:
    """By how far the worst quantity is over its limit."""
    return sorted(failures, key=lambda f: -max((m.worst / m.limit for m in f.wrong.values()), default=0.0))


def _check_blocks(quantity: str, units: list[list[list[list[float]]]], ranks: int, blocks: int) -> None:
    if len(units) != ranks:
        raise ValueError(f"{quantity} has units of {len(units)} ranks; expected {ranks}")
    shapes = {(len(rank), len(row), len(block)) for rank in units for row in rank for block in row}
    if len(shapes) != 1 or {shape[1] for shape in shapes} != {blocks} or 0 in next(iter(shapes)):
        found = ", ".join(map(str, sorted(shapes))) or "nothing"
        raise ValueError(f"units of {quantity} have [row][block][head] of {found}; expected {blocks} blocks everywhere")


def first_few(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    return ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)
