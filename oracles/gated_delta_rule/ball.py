"""The rule in ball arithmetic (python-flint `arb`): every returned ball contains the true value.

One batch row and one value head at a time. Precision is the caller's `bits`, or `enclose` finds it: the
radius grows by up to about a bit a token where the decay is weak, so it is raised until the balls are tight.
"""

from collections.abc import Callable
from typing import no_type_check

import numpy as np
from flint import arb, arb_mat, ctx
from jaxtyping import Float64, Int

from oracles.segments import starts

Keys = Float64[np.ndarray, "T K"]
Values = Float64[np.ndarray, "T V"]
Gates = Float64[np.ndarray, " T"]
State = Float64[np.ndarray, "K V"]
Segments = Int[np.ndarray, " T"]

FIRST_BITS = 128  # two machine words: the fastest there is
MOST_BITS = 16384
SHARP = 80  # bits of a number that are known, 27 more than float64 has
SMALLEST = arb(2) ** -1074


def forward(
    q: Keys,
    k: Keys,
    v: Values,
    g: Gates,
    beta: Gates,
    initial_state: State,
    *,
    scale: float | None,
    bits: int,
    segment_ids: Segments | None = None,
) -> tuple[arb_mat, arb_mat]:
    """Balls around `o [T, V]` and `final_state [K, V]`, with `bits` of working precision.

    With `segment_ids` the state is 0 before each further document (`oracles.segments`).
    """
    first = starts(segment_ids, g.shape)
    with ctx.workprec(bits):
        scale_ball = _scale(scale, q.shape[1])
        h, o = _matrix(initial_state), []
        for t in range(len(g)):
            h, _, _ = _write(h, k[t], v[t], _decay(g[t], first[t]), beta[t])
            o.append((_row(q[t]) * h * scale_ball).entries())
        return _rows(o, v.shape), h


def adjoint(
    q: Keys,
    k: Keys,
    v: Values,
    g: Gates,
    beta: Gates,
    initial_state: State,
    do: Values,
    dfinal_state: State,
    *,
    scale: float | None,
    bits: int,
    segment_ids: Segments | None = None,
) -> tuple[arb_mat, arb_mat, arb_mat, arb_mat, arb_mat, arb_mat]:
    """Balls around `dq, dk [T, K]`, `dv [T, V]`, `dg, dbeta [T, 1]` and `dh0 [K, V]`."""
    found = forward_and_adjoint(
        q, k, v, g, beta, initial_state, do, dfinal_state, scale=scale, bits=bits, segment_ids=segment_ids
    )
    return found[2:]


def forward_and_adjoint(
    q: Keys,
    k: Keys,
    v: Values,
    g: Gates,
    beta: Gates,
    initial_state: State,
    do: Values,
    dfinal_state: State,
    *,
    scale: float | None,
    bits: int,
    segment_ids: Segments | None = None,
) -> tuple[arb_mat, arb_mat, arb_mat, arb_mat, arb_mat, arb_mat, arb_mat, arb_mat]:
    """The results of `forward` and of `adjoint`, from one walk over the tokens and back."""
    first = starts(segment_ids, g.shape)
    with ctx.workprec(bits):
        scale_ball = _scale(scale, q.shape[1])
        h, o, decayed, residual = _matrix(initial_state), [], [], []
        for t in range(len(g)):
            h, h_decayed, r = _write(h, k[t], v[t], _decay(g[t], first[t]), beta[t])
            o.append((_row(q[t]) * h * scale_ball).entries())
            decayed.append(h_decayed)
            residual.append(r)

        backwards: list[list[list[arb]]] = []
        L, later_dg = _matrix(dfinal_state), None
        for t in reversed(range(len(g))):
            key, query, b = _row(k[t]), _row(q[t]), arb(float(beta[t]))
            e = residual[t] * b
            do_t = _row(do[t]) * scale_ball
            # Products with h_t = h~ + k e^T and with L + q do^T, neither of which is formed.
            read = decayed[t] * do_t.transpose()
            dq = read + key.transpose() * (e * do_t.transpose())
            de_of_later = key * L
            de = de_of_later + (key * query.transpose()) * do_t
            dv = de * b
            dbeta = de * residual[t].transpose()
            written = decayed[t] * dv.transpose()
            dk = L * e.transpose() + query.transpose() * (do_t * e.transpose()) - written
            # dg = <L + q do^T - k dv^T, h~> with <L, h~> = <L, h_t> - <L, k e^T>, and <L, h_t> is dg of token t + 1
            # (both are 0 where that one begins a document).
            if later_dg is not None:
                dg = later_dg - de_of_later * e.transpose() + query * read - key * written
            L = L + _columns(q[t], -k[t]) * _stacked(do_t, dv)
            if later_dg is None or dg[0, 0].rel_accuracy_bits() < SHARP:  # the sum has cancelled
                dg = _inner(L, decayed[t])
            later_dg = dg
            L = L * _decay(g[t], first[t])
            backwards.append([x.entries() for x in (dq, dk, dv, dg, dbeta)])
        per_gate = (len(g), 1)
        gradients = [
            _rows([token[i] for token in reversed(backwards)], shape)
            for i, shape in enumerate((q.shape, k.shape, v.shape, per_gate, per_gate))
        ]
        return _rows(o, v.shape), h, *gradients, L  # type: ignore[return-value]


def enclose(balls: Callable[[int], tuple[arb_mat, ...]], *, bits: int = FIRST_BITS) -> tuple[tuple[arb_mat, ...], int]:
    """Call `balls(bits)`, with more bits until every result is tight; return the balls and the bits it took.

    Tight: in each matrix no radius exceeds `2^-64` of the largest midpoint, eleven bits below float64. The radius falls
    by a factor of two with each bit, so that a second call mostly suffices.
    Raises ArithmeticError where 16384 bits do not suffice (an input that is not finite, for one).
    """
    while bits <= MOST_BITS:
        result = balls(bits)
        missing = max(_missing_bits(matrix) for matrix in result)
        if missing <= 0:
            return result, bits
        bits = bits + missing + 8 if missing < MOST_BITS else 2 * bits
    raise ArithmeticError(f"no tight enclosure with {MOST_BITS} bits: are all inputs finite?")


def distance(approximation: np.ndarray, balls: arb_mat) -> np.ndarray:
    """Upper bounds of `|approximation - truth|`, entry by entry, in the shape of `approximation`."""
    if approximation.size != balls.nrows() * balls.ncols():
        raise ValueError(f"{approximation.size} numbers against {balls.nrows() * balls.ncols()} balls")
    with ctx.workprec(256):
        exactly = arb_mat(balls.nrows(), balls.ncols(), approximation.ravel().tolist())
        bounds = [difference.abs_upper() for difference in (exactly - balls).entries()]
    # float() rounds to nearest; one step up makes it a bound again (a distance of zero is exact).
    floats = np.nextafter([float(bound) for bound in bounds], np.inf)
    return np.where([bound == 0 for bound in bounds], 0.0, floats).reshape(approximation.shape)


def _missing_bits(matrix: arb_mat) -> int:
    """By how many bits the widest ball exceeds `2^-64` of the largest midpoint; at most 0 where the matrix is tight."""
    entries = matrix.entries()
    if not all(entry.is_finite() for entry in entries):
        return MOST_BITS
    if all(entry.rel_accuracy_bits() >= 64 for entry in entries):  # each is tight by itself, which is quickly seen
        return 0
    widest = max((entry.rad() for entry in entries), default=arb(0))
    if widest == 0:
        return 0
    # The midpoints are good long before the radii are; and float64 knows nothing below its smallest number.
    largest = max(SMALLEST, *(abs(entry.mid()) for entry in entries))
    mantissa, exponent = (widest / largest).abs_upper().man_exp()
    return int(mantissa.bit_length() + exponent) + 64


@no_type_check  # for every token
def _decay(g: float, is_first: np.bool_) -> arb:
    return arb(0) if is_first else arb(float(g)).exp()


@no_type_check  # for every token
def _write(h: arb_mat, k: np.ndarray, v: np.ndarray, decay: arb, beta: float) -> tuple[arb_mat, arb_mat, arb_mat]:
    key = _row(k)
    decayed = h * decay
    residual = _row(v) - key * decayed
    return decayed + key.transpose() * (residual * arb(float(beta))), decayed, residual


@no_type_check  # for every token
def _columns(*vectors: np.ndarray) -> arb_mat:
    """`[size, count]`, exactly."""
    return arb_mat(len(vectors[0]), len(vectors), np.stack(vectors, axis=1).ravel().tolist())


@no_type_check  # for every token
def _stacked(*rows: arb_mat) -> arb_mat:
    """`[count, size]`."""
    return arb_mat(len(rows), rows[0].ncols(), [x for row in rows for x in row.entries()])


@no_type_check  # for every token
def _inner(x: arb_mat, y: arb_mat) -> arb_mat:
    """`<x, y>` as a 1 x 1 matrix: one product of a row and a column."""
    return arb_mat(1, x.nrows() * x.ncols(), x.entries()) * arb_mat(y.nrows() * y.ncols(), 1, y.entries())


def _scale(scale: float | None, key_size: int) -> arb:
    return 1 / arb(key_size).sqrt() if scale is None else arb(float(scale))


def _matrix(x: np.ndarray) -> arb_mat:
    return arb_mat(x.shape[0], x.shape[1], x.ravel().tolist())


@no_type_check  # for every token
def _row(x: np.ndarray) -> arb_mat:
    return arb_mat(1, len(x), x.tolist())


def _rows(rows: list[list[arb]], shape: tuple[int, ...]) -> arb_mat:
    return arb_mat(shape[0], shape[1], [entry for row in rows for entry in row])
