"""What a fault is: a mistake, how to make it, and where the suite must see it."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from implementations.chunked import CHUNKED
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.contract import Dtype, Implementation
from oracles.gated_delta_rule import QUANTITIES
from parity.faults.around import Wrap
from parity.faults.edits import Edit, edited, is_within
from parity.faults.kills import EVERY_QUANTITY
from parity.shapes import RAGGED, Shape

Kind = Literal[
    "hand_over", "chunk", "rule", "backward", "precision", "interface", "padding", "packing", "kernel", "null"
]

STRUCTURAL = 1000.0  # times the limit in f64: such a mistake is not a matter of precision
LEAST = 4.0  # times the limit: the least by which any fault must exceed it

ONE_DEVICE = (
    "implementations.chunked:CHUNKED",
    "implementations.sequential:SEQUENTIAL",
    "implementations.pallas.composition:PALLAS",
)
OVER_RANKS = "implementations.context_parallel.two_phase:TWO_PHASE"


class NotApplicable(Exception):
    """A fault that cannot be planted in an implementation; the message says why."""


@dataclass(frozen=True)
class Fault:
    """A mistake, made either by `edits` of our source or by a `wrap` around any implementation.

    - `name`: a token of test ids. `cause`: one line for the reader of a failure.
    - `quantity` must be wrong in each of `regimes`, by `margin` times the limit.
    - `right`: quantities that stay right everywhere, which shows that the fault is what it says it is.
    - `ranks`: how many it takes. Ranks from `first_bad_rank` to `last_bad_rank` (None: the last one) must be wrong in
      `quantity`, and the others right.
    - `packing`: of the problems that it is put to, for what concerns documents that share a row.
    - `source`: the public report that it comes from, where there is one.
    """

    name: str
    cause: str
    kind: Kind
    quantity: str
    regimes: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    wrap: Wrap | None = None
    ranks: int = 1
    dtype: Dtype = "f64"
    shape: Shape = RAGGED
    packing: str = ""
    margin: float = STRUCTURAL
    right: tuple[str, ...] = ()
    first_bad_rank: int = 0
    last_bad_rank: int | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if bool(self.edits) == bool(self.wrap):
            raise ValueError(f"{self.name}: a fault is made by edits or by a wrap, and not by both")

    @property
    def must_fail(self) -> tuple[str, ...]:
        """The quantities that must be wrong."""
        return QUANTITIES if self.quantity == EVERY_QUANTITY else (self.quantity,)

    @property
    def implementation(self) -> Implementation:
        """The implementation that it is written for, with the fault in it."""
        implementation = self.planted(self.ranks > 1)
        if implementation is None:
            raise ValueError(f"{self.name} can be planted nowhere on {self.ranks} ranks")
        return implementation

    def planted(self, context_parallel: bool) -> Implementation | None:
        """`chunked` (`sequential`, `pallas`), or `two_phase`, with the fault in it; None where it cannot be in that.

        Built when it is first asked for, and the same record each time. Raises ValueError where an edit finds not
        exactly one place.
        """
        return _planted(self, context_parallel)

    def on(self, implementation: Implementation) -> Implementation:
        """Any implementation with the fault around it. Raises NotApplicable."""
        if self.wrap is None:
            raise NotApplicable("an edit of this suite's source code")
        if self.ranks > 1 and not implementation.context_parallel:
            raise NotApplicable("a fault between ranks, of which it has one")
        return replace(self.wrap(implementation), name=f"{implementation.name}_with_{self.name}")


@cache
def _planted(fault: Fault, context_parallel: bool) -> Implementation | None:
    if fault.ranks > 1 and not context_parallel:
        return None
    if fault.wrap is not None:
        return replace(fault.wrap(TWO_PHASE if context_parallel else CHUNKED), name=fault.name)
    for target in (OVER_RANKS,) if context_parallel else ONE_DEVICE:
        if is_within(target, *fault.edits):
            record: Implementation = edited(target, *fault.edits)
            return replace(record, name=fault.name)
    return None
