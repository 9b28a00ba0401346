"""What meets what: the cases of the gate, in one place.

Regimes share shapes, so a compilation (implementation, dtype, shape, ranks) serves all of its regimes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from implementations import VARIANTS
from implementations.contract import Dtype, Implementation
from oracles.gated_delta_rule import GRADIENTS, QUANTITIES
from parity.layouts import (
    BESIDE_OTHERS,
    LAYOUTS,
    MANUAL,
    MINOR_FIRST,
    SEVERAL_AXES,
    SHUFFLED,
    ZIGZAG,
    ZIGZAG_MINOR_FIRST,
    Layout,
    over,
)
from parity.packing import PACKINGS
from parity.precision import DTYPES
from parity.problem import Problem
from parity.regimes import REGIMES
from parity.shapes import ALIGNED, RAGGED, SHAPES, SHORT, SINGLE, UNEVEN, WIDE, Shape

EVERY = tuple(REGIMES)
EVERY_PACKING = tuple(PACKINGS)
SHARPEST = ("typical", "long_memory", "mixed_gates", "correlated_keys", "beta_near_two")

MESHES = (1, 2, 4, 5, 8)


@dataclass(frozen=True)
class Row:
    """An implementation meets `dtypes` x `regimes` in `shape`; a context-parallel one on each of `ranks`: that many on
    one axis, or over that layout. `packings`: how documents are packed into rows, where they are.
    """

    shape: Shape
    dtypes: tuple[Dtype, ...]
    regimes: tuple[str, ...]
    ranks: tuple[Layout | int, ...]
    packings: tuple[str, ...] = ("",)


GATE = (
    Row(RAGGED, DTYPES, EVERY, ranks=(4,)),
    Row(RAGGED, DTYPES, SHARPEST, ranks=(2, 8)),
    Row(ALIGNED, DTYPES, (*SHARPEST, "orthogonal_write"), ranks=(8,)),
    Row(UNEVEN, DTYPES, (*SHARPEST, "zero_keys"), ranks=(1,)),
    Row(UNEVEN, ("f64",), SHARPEST, ranks=(5,)),
    # To certify K = V = 128 takes several times as long as any other: few regimes, and every dtype.
    Row(WIDE, ("f64",), ("typical", "strong_decay"), ranks=(2,)),
    Row(WIDE, ("f32",), ("repeated_keys",), ranks=(2,)),
    Row(WIDE, ("bf16",), ("zero_keys",), ranks=(2,)),
    Row(SHORT, DTYPES, (*SHARPEST, "strong_decay", "zero_keys"), ranks=(8,)),
    Row(SHORT, ("f64",), (*SHARPEST, "strong_decay", "zero_keys"), ranks=(4,)),
    Row(SINGLE, DTYPES, (*SHARPEST, "zero_keys"), ranks=(1,)),
    Row(RAGGED, DTYPES, ("long_memory", "mixed_gates"), ranks=(MINOR_FIRST,)),
    Row(RAGGED, ("f64",), ("long_memory", "mixed_gates"), ranks=(*SEVERAL_AXES, *BESIDE_OTHERS, MANUAL)),
    Row(RAGGED, ("f64",), ("long_memory",), ranks=(ZIGZAG,)),
    # A start is missed, or comes late, whatever the values are; where memory is long it shows.
    Row(RAGGED, DTYPES, ("long_memory", "typical"), ranks=(4,), packings=EVERY_PACKING),
    Row(RAGGED, ("f64",), ("long_memory",), ranks=(MINOR_FIRST,), packings=EVERY_PACKING),
    Row(UNEVEN, ("f64",), ("long_memory",), ranks=(5,), packings=EVERY_PACKING),
    Row(SHORT, ("f64",), ("long_memory",), ranks=(8,), packings=EVERY_PACKING),
)

# What is made of parts that meet the whole gate elsewhere: another exchange, another kernel inside, another order.
OF_VARIANTS = (
    Row(RAGGED, DTYPES, SHARPEST, ranks=(4,)),
    Row(UNEVEN, ("f64",), SHARPEST, ranks=(5,)),
    Row(SHORT, ("f64",), (*SHARPEST, "zero_keys"), ranks=(8,)),
    Row(RAGGED, ("f64",), ("long_memory", "mixed_gates"), ranks=(MINOR_FIRST, MANUAL)),
    Row(RAGGED, ("f64",), ("long_memory", "typical"), ranks=(4,), packings=EVERY_PACKING),
)
# A kernel for one device that claims bf16 alone.
OF_NARROW_VARIANTS = (
    Row(RAGGED, ("bf16",), EVERY, ranks=(1,)),
    Row(SHORT, ("bf16",), (*SHARPEST, "strong_decay", "zero_keys"), ranks=(1,)),
    Row(RAGGED, ("bf16",), ("long_memory", "typical"), ranks=(1,), packings=EVERY_PACKING),
)
OF_LOAD_BALANCED = (
    Row(RAGGED, DTYPES, SHARPEST, ranks=(ZIGZAG,)),
    Row(RAGGED, ("f64",), SHARPEST, ranks=(SHUFFLED,)),
    Row(RAGGED, ("f64",), ("long_memory", "mixed_gates"), ranks=(ZIGZAG_MINOR_FIRST,)),
    Row(SHORT, ("f64",), (*SHARPEST, "zero_keys"), ranks=(ZIGZAG,)),
    Row(RAGGED, ("f64",), ("long_memory",), ranks=(ZIGZAG, SHUFFLED), packings=EVERY_PACKING),
)

FULL = tuple(
    Row(
        shape,
        DTYPES,
        EVERY,
        tuple(where for where in (*map(over, MESHES), *LAYOUTS.values()) if where.splits(shape)),
        ("", *EVERY_PACKING),
    )
    for shape in SHAPES.values()
)


@dataclass(frozen=True)
class Case:
    """One run of an implementation on a problem, over a layout or that many ranks (1 where it knows no ranks)."""

    implementation: Implementation
    problem: Problem
    over: Layout | int

    @cached_property  # ids of tests are made of these, tens of thousands at a time
    def layout(self) -> Layout:
        return _layout(self.over)

    @cached_property
    def ranks(self) -> int:
        return self.layout.ranks

    @cached_property
    def name(self) -> str:
        regime = self.problem.regime + (f"_packed_{self.problem.packing}" if self.problem.packing else "")
        regime += f"_seed{self.problem.seed}" if self.problem.seed else ""
        return f"{self.implementation.name}-{self.problem.dtype}-{regime}-{self._where}"

    @cached_property
    def compilation(self) -> str:
        """What one compiled program serves: the unit of distribution over workers."""
        packed = "-packed" if self.problem.packing else ""
        return f"{self.implementation.name}-{self.problem.dtype}-{self._where}-{self.ranks}ranks{packed}"

    @property
    def _where(self) -> str:
        return self.problem.shape.name + (f"_on_{self.layout.name}" if self.layout.name else "")


@dataclass(frozen=True)
class Item:
    """One quantity of one case on one rank: a test."""

    case: Case
    rank: int
    quantity: str

    @property
    def name(self) -> str:
        return f"{self.case.name}-shard{self.rank}of{self.case.ranks}-{self.quantity}"

    def not_applicable(self) -> str | None:
        """Why the implementation does not claim this, or None where it does."""
        implementation, problem, ranks = self.case.implementation, self.case.problem, self.case.ranks
        shape, supports, layout = problem.shape, implementation.supports, self.case.layout
        tokens = shape.T // ranks
        reasons = {
            f"no arithmetic is claimed for {problem.dtype}": problem.dtype not in implementation.arithmetic,
            f"T = {shape.T} cannot be split over {ranks} ranks": shape.T % ranks != 0,
            "no packed documents": bool(problem.packing) and not implementation.packed,
            "no load-balanced order": layout.piece_order is not None and not implementation.load_balanced,
            "no several axes": len(layout.axes) > 1 and "several_axes" not in supports,
            "no axes beside those of the ranks": bool(layout.beside) and "other_axes" not in supports,
            "no axes that are manual already": layout.manual
            and ("manual_axes" not in supports or implementation.vjp is not None),
            "no gradients": self.quantity in GRADIENTS and "gradients" not in supports,
            "no grouped heads": shape.Hv != shape.Hk and "grouped_heads" not in supports,
            "no K != V": shape.K != shape.V and "unequal_head_sizes" not in supports,
            "no T that is not a multiple of the chunk": tokens % shape.chunk_size != 0 and "ragged" not in supports,
            "no beta above 1": problem.regime == "beta_near_two" and "beta_above_one" not in supports,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)


def gate_of(implementation: Implementation) -> tuple[Row, ...]:
    """The rows of the gate that it meets."""
    of_variants = OF_VARIANTS if implementation.context_parallel else OF_NARROW_VARIANTS
    rows = of_variants if implementation in VARIANTS else GATE
    return (*rows, *OF_LOAD_BALANCED) if implementation.load_balanced else rows


def cases(
    implementations: Sequence[Implementation], rows: Sequence[Row] | None = None, seeds: Sequence[int] = (0,)
) -> list[Case]:
    """All cases of `rows`, or of the gate, each once, those of one compilation together."""
    found: dict[tuple[str, str], Case] = {}
    for implementation in implementations:
        for case in _cases_of(implementation, gate_of(implementation) if rows is None else rows, seeds):
            found.setdefault((case.name, case.compilation), case)
    return sorted(found.values(), key=lambda case: case.compilation)


def items(cases: Sequence[Case], quantities: Sequence[str] = QUANTITIES) -> list[Item]:
    """Every rank and quantity of every case."""
    return [Item(case, rank, quantity) for case in cases for rank in range(case.ranks) for quantity in quantities]


def _cases_of(implementation: Implementation, rows: Sequence[Row], seeds: Sequence[int]) -> Iterator[Case]:
    for row in rows:
        for dtype in row.dtypes:
            for ranks in row.ranks if implementation.context_parallel else (1,):
                for regime, packing, seed in product(row.regimes, row.packings, seeds):
                    yield Case(implementation, Problem(regime, row.shape, dtype, seed, packing), _layout(ranks))


def _layout(ranks: Layout | int) -> Layout:
    return over(ranks) if isinstance(ranks, int) else ranks
