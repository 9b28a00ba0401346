"""How far off an answer of the layer is: in units, block by block.

Blocks are small enough that one bad element is not diluted: of tokens per batch row and 64 tokens of a rank, the first
W - 1 of the rank apart; of states per row and head; of parameters per head, and of kernels per tap of a head.
"""

from dataclasses import dataclass

import numpy as np

from implementations.contract import Dtype
from oracles.gated_delta_net import QUANTITIES
from parity.layer.problem import OF_STATES, OF_TOKENS, SIZES, Problem, dtype_of, truth
from parity.precision import NUMPY, SMALLEST_NORMAL, UNIT_ROUNDOFF
from parity.tolerances.limits import Row, limits
from parity.unit import BLOCK, units

# What each rank holds, of each quantity.
Pieces = dict[str, list[np.ndarray]]


@dataclass(frozen=True)
class Finding:
    """A quantity: `units` of the worst block, and where it is."""

    quantity: str
    units: float
    where: str
    limit: float
    limit_row: str
    relative_error: float

    @property
    def passes(self) -> bool:
        return self.units <= self.limit

    def __str__(self) -> str:
        return (
            f"{self.quantity} {self.where}: {self.units:.3g} units, limit {self.limit:g} ({self.limit_row}); "
            f"relative error {self.relative_error:.2g}"
        )


def limit_of(dtype: Dtype) -> Row:
    """The base row: of the arithmetic in which a model in `dtype` is computed, for it rounds to that in between."""
    return limits().base[dtype]


def judged(problem: Problem, pieces: Pieces) -> dict[str, Finding]:
    """A finding for each quantity in `pieces`, of the worst block on any rank. Raises TypeError on a wrong dtype."""
    values, _ = truth(problem)
    limit, found = limit_of(problem.dtype), {}
    for name in (name for name in QUANTITIES if name in pieces):
        of_ranks = pieces[name]
        for rank, x in enumerate(of_ranks):
            if x.dtype != NUMPY[dtype_of(name, problem.dtype)]:
                raise TypeError(f"{name} of rank {rank} is {x.dtype} in a model in {problem.dtype}")
        want = as_held(name, values[name], of_ranks)
        worst, where = off(problem, name, of_ranks, want)
        got = [x.astype(np.float64) for x in of_ranks]
        error, norm = (
            float(np.linalg.norm(np.stack(x))) for x in ([a - b for a, b in zip(got, want, strict=True)], want)
        )
        found[name] = Finding(name, worst, where, limit.units, limit.name, error / norm if norm else error)
    return found


def as_held(quantity: str, x: np.ndarray, like: list[np.ndarray]) -> list[np.ndarray]:
    """Of a quantity as a whole, what each rank should hold: its tokens, or all of it."""
    if quantity not in OF_TOKENS:
        return [x] * len(like)
    held = like[0].shape[1]
    return [x[:, rank * held : (rank + 1) * held] for rank in range(len(like))]


def off(problem: Problem, quantity: str, got: list[np.ndarray], want: list[np.ndarray]) -> tuple[float, str]:
    """The units of the worst block on any rank, and where it is."""
    kappa = as_held(quantity, truth(problem)[1][quantity], got)
    worst, where = -1.0, ""
    for rank, of_rank in enumerate(zip(got, want, kappa, strict=True)):
        for name, block in blocks(problem, quantity, *(x.astype(np.float64) for x in of_rank)):
            found = units(
                *block,
                u_c=UNIT_ROUNDOFF[problem.dtype],
                u_out=UNIT_ROUNDOFF[dtype_of(quantity, problem.dtype)],
                floor=SMALLEST_NORMAL[problem.dtype],
            )
            row, number, head = (int(i) for i in np.unravel_index(np.argmax(found), found.shape))
            if found[row, number, head] > worst:
                worst, where = float(found[row, number, head]), name.format(row=row, block=number, head=head)
                where += f" of rank {rank}" if len(got) > 1 else ""
    return worst, where


def blocks(problem: Problem, quantity: str, *arrays: np.ndarray) -> list[tuple[str, tuple[np.ndarray, ...]]]:
    """Arrays of a quantity, as `[row, tokens, head, size]` for the unit, with words for where a block of them is."""
    if quantity in OF_TOKENS:
        halo = SIZES[problem.sizes].W - 1
        first, others = (tuple(x[:, held, None] for x in arrays) for held in (np.s_[:halo], np.s_[halo:]))
        return [
            (f"row {{row}}, first {halo} tokens", first),
            (f"row {{row}}, tokens from {halo} + {BLOCK} x {{block}} on", others),
        ]
    if quantity in OF_STATES:
        if "recurrent" in quantity:
            return [("row {row}, head {head}", tuple(x.reshape(*x.shape[:2], -1)[:, None] for x in arrays))]
        return [("row {row}, head {head}", arrays)]
    if quantity.startswith("dconv"):  # [H, N, W]
        return [("tap {row}, head {head}", tuple(x.transpose(2, 0, 1)[:, None] for x in arrays))]
    if quantity == "dnorm":
        return [("whole", tuple(x[None, None, None] for x in arrays))]
    heads = 0 if quantity in ("dA_log", "ddt_bias", "dout") else 1
    by_head = (np.moveaxis(x, heads, 0) for x in arrays)
    return [("head {head}", tuple(x.reshape(1, 1, x.shape[0], -1) for x in by_head))]
