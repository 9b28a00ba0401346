"""How far an answer is from the truth, or from another answer, in the units of the truth."""

from typing import cast

import numpy as np
from jaxtyping import Float

from implementations.contract import Dtype
from parity.matrix import Case
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF, dtype_of
from parity.run import IN_VJP, REPLICATED, Answer
from parity.truth import per_token, truth
from parity.unit import in_units

Pieces = list[np.ndarray]  # one a rank
Units = Float[np.ndarray, "R B blocks H"]


def results(answer: Answer) -> dict[str, Pieces]:
    """Every quantity that could be measured, those of the forward under `jax.vjp` with `IN_VJP` behind their names."""
    return answer.pieces | {quantity + IN_VJP: pieces for quantity, pieces in answer.in_vjp.items()}


def from_truth(case: Case, result: str, pieces: Pieces, block: int) -> Units:
    """Units per rank and block of `block` tokens; infinite where `pieces` are not finite."""
    wanted = truth(case.problem).values[result.removesuffix(IN_VJP)]
    return _units(
        case, result, pieces, [_part(wanted, result, rank, piece) for rank, piece in enumerate(pieces)], block
    )


def between(case: Case, result: str, pieces: Pieces, others: Pieces, block: int) -> Units:
    """The same for the difference of two answers: 0 in a block in which neither is finite; infinite if one is."""
    quantity = result.removesuffix(IN_VJP)
    return _units(case, result, pieces, [per_token(quantity, other.astype(np.float64)) for other in others], block)


def _units(case: Case, result: str, pieces: Pieces, references: Pieces, block: int) -> Units:
    """The denominator is that of the truth, whatever the reference is."""
    dtype, quantity = case.problem.dtype, result.removesuffix(IN_VJP)
    arithmetic = cast(Dtype, case.implementation.arithmetic[dtype])
    wanted = truth(case.problem)
    found = []
    for rank, (piece, reference) in enumerate(zip(pieces, references, strict=True)):
        got = per_token(quantity, piece.astype(np.float64))
        want, kappa = (_part(x[quantity], result, rank, piece) for x in (wanted.values, wanted.kappa))
        with np.errstate(over="ignore", invalid="ignore"):
            error = got - reference
        both, either = _not_finite(got, block) & _not_finite(reference, block), _not_finite(error, block)
        units = in_units(
            np.where(np.isfinite(error), error, 0.0),
            want,
            kappa,
            u_c=UNIT_ROUNDOFF[arithmetic],
            u_out=UNIT_ROUNDOFF[dtype_of(quantity, dtype)],
            floor=SMALLEST_NORMAL[arithmetic],
            block=block,
        )
        found.append(np.where(both, 0.0, np.where(either, np.inf, units)))
    return np.stack(found)


def _part(x: np.ndarray, result: str, rank: int, piece: np.ndarray) -> np.ndarray:
    """The rank's tokens, or all of a state."""
    if result.removesuffix(IN_VJP) in REPLICATED:
        return x
    tokens = piece.shape[1]
    return x[:, rank * tokens : (rank + 1) * tokens]


def _not_finite(x: Float[np.ndarray, "B T H size"], block: int) -> np.ndarray:
    starts = range(0, x.shape[1], block)
    return np.stack([~np.isfinite(x[:, s : s + block]).all(axis=(1, 3)) for s in starts], axis=1)
