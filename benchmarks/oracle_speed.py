"""How fast the oracles are, in tokens of one value head a second: `python benchmarks/oracle_speed.py`.

All three walk over the tokens, so that a rate does not depend on how many there are, and the slow ones get few.
mpmath works in as many digits as the balls have bits. Compare within one row: it was measured in one process.
"""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracles.gated_delta_rule import ball, float64
from oracles.gated_delta_rule import mp as mpmath_rule
from oracles.stream import Stream

BITS = (128, 512)
SIZES = {(16, 24): 8, (64, 64): 4, (128, 128): 2}  # (K, V): tokens for mpmath
ROWS, HEADS = 2, 6  # float64 does them all at once, as in the gate
ENOUGH = 0.5  # seconds of repetitions, of which the best counts

WIDTH = 14

Arguments = tuple[np.ndarray, ...]
Passes = tuple[Callable[..., object], Callable[..., object], Callable[..., object]]


def main() -> None:
    columns = ("bits", "digits", "float64", "balls", "mpmath", "balls/mpmath")
    print(f"{'token-heads a second':31}" + "".join(f"{name:>{WIDTH}}" for name in columns))
    for (K, V), few in SIZES.items():
        for name, passes in (("forward", FORWARD), ("forward + adjoint", BOTH)):
            for bits in BITS:
                row = f"K={K} V={V} {name}"
                print(f"{row}, {bits} bits", file=sys.stderr, flush=True)
                digits = math.ceil(bits * math.log10(2))
                batch, balls, mpmath = rates(passes, K, V, few, bits, digits)
                cells = (bits, digits, f"{batch:,.0f}", f"{balls:,.0f}", f"{mpmath:,.1f}", f"{balls / mpmath:.0f}")
                print(f"{row:31}" + "".join(f"{cell:>{WIDTH}}" for cell in cells), flush=True)


def rates(passes: Passes, K: int, V: int, few: int, bits: int, digits: int) -> tuple[float, float, float]:
    """Of float64, of balls and of mpmath."""
    in_float64, in_balls, in_mpmath = passes
    return (
        64 * ROWS * HEADS / best(in_float64, problem(K, V, 64)),
        16 / best(in_balls, one_head(problem(K, V, 16)), bits),
        few / best(in_mpmath, one_head(problem(K, V, few)), digits),
    )


def problem(K: int, V: int, tokens: int) -> Arguments:
    """Inputs and cotangents in the order of the adjoint."""
    stream = Stream(f"oracle speed {K} {V}")
    keys, values, states = (ROWS, tokens, HEADS, K), (ROWS, tokens, HEADS, V), (ROWS, HEADS, K, V)
    q, k = (stream.normal(name, *keys) / K**0.5 for name in "qk")
    g, beta = -stream.uniform("g", *keys[:3]), stream.uniform("beta", *keys[:3])
    v, do = (stream.normal(name, *values) for name in ("v", "do"))
    return q, k, v, g, beta, stream.normal("h0", *states), do, stream.normal("dh", *states)


def one_head(arguments: Arguments) -> Arguments:
    *sequences, h0, do, dh = arguments
    return *(x[0, :, 0] for x in sequences), h0[0, 0], do[0, :, 0], dh[0, 0]


def best(call: Callable[..., object], *arguments: Arguments | int) -> float:
    """The shortest of as many repetitions as fit, in seconds."""
    found, end = math.inf, time.perf_counter() + ENOUGH
    while True:
        start = time.perf_counter()
        call(*arguments)
        now = time.perf_counter()
        found = min(found, now - start)
        if now >= end:
            return found


def float64_both(x: Arguments) -> object:
    return float64.forward(*x[:6]), float64.adjoint(*x)


def mpmath_both(x: Arguments, digits: int) -> object:
    forward = mpmath_rule.forward(*x[:6], scale=None, digits=digits)
    return forward, mpmath_rule.adjoint(*x, scale=None, digits=digits)


FORWARD = (
    lambda x: float64.forward(*x[:6]),
    lambda x, bits: ball.forward(*x[:6], scale=None, bits=bits),
    lambda x, digits: mpmath_rule.forward(*x[:6], scale=None, digits=digits),
)
BOTH = (float64_both, lambda x, bits: ball.forward_and_adjoint(*x, scale=None, bits=bits), mpmath_both)


if __name__ == "__main__":
    main()
