"""The causal convolution as it is put to the test: what is asked, what each rank answers, and how far off it is.

The first and the last W - 1 tokens of each rank are blocks of the unit of their own: what goes wrong with a halo, or
with what is sent back for it, goes wrong there, and is not diluted by the tokens between.
"""

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from implementations.contract import Dtype
from oracles.causal_conv import float64
from oracles.conditioning import rms_response
from oracles.stream import Stream
from parity.compilation import jit_for_few_runs
from parity.layouts import Layout, over
from parity.meshes import keywords, per_rank, place
from parity.packing import segment_ids
from parity.precision import NUMPY, SMALLEST_NORMAL, UNIT_ROUNDOFF, round_to
from parity.shapes import Shape
from parity.unit import units
from parity.x64 import x64

B, T, D, W = 2, 88, 6, 4
NAMES = ("x", "weight", "initial_state", "dy", "dfinal_state")
QUANTITIES = ("y", "final_state", "dx", "dweight", "dinitial_state")
OF_TOKENS = ("x", "dy", "y", "dx")

Convolution = Callable[..., tuple[Any, Any]]
Arrays = tuple[np.ndarray, ...]


# What is asked


def _typical(stream: Stream, name: str, shape: tuple[int, ...]) -> np.ndarray:
    return stream.normal(name, *shape)


def _decades(stream: Stream, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Every number of a size of its own, from 2^-12 to 2^12."""
    return stream.normal(name, *shape) * 2.0 ** (stream.integers(f"exponents of {name}", 25, *shape) - 12)


def _edges(stream: Stream, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """On eight ranks, only the last token of each and the cotangent of its first are not 0: what is right is 0 in many
    blocks, where the claim is equality.
    """
    values = stream.normal(name, *shape)
    if name in OF_TOKENS:
        held = T // 8
        values[:, np.arange(T) % held != (held - 1 if name == "x" else 0)] = 0
    return values


VALUES = {"typical": _typical, "decades": _decades, "edges": _edges}


PACKED = Shape("convolution", B=B, T=T, Hk=1, Hv=1, K=1, V=1, chunk_size=16)


def documents(packing: str) -> dict[str, np.ndarray]:
    """The keyword `segment_ids`, none where a row is one document."""
    return {"segment_ids": segment_ids(packing, PACKED)} if packing else {}


def arguments(values: str, dtype: Dtype, width: int) -> Arrays:
    """`NAMES`, rounded to `dtype`."""
    stream = Stream(f"causal conv/{values}/{width}")
    shapes = ((B, T, D), (D, width), (B, width - 1, D), (B, T, D), (B, width - 1, D))
    return tuple(
        round_to(VALUES[values](stream, name, shape), dtype) for name, shape in zip(NAMES, shapes, strict=True)
    )


@cache
def truth(values: str, dtype: Dtype, width: int, packing: str = "") -> tuple[Arrays, Arrays]:
    """`QUANTITIES` as the float64 oracle has them, and the kappa of each."""

    def oracle(*arguments: np.ndarray) -> Arrays:
        given = documents(packing)
        return *float64.forward(*arguments[:3], **given), *float64.adjoint(*arguments, **given)

    exact = tuple(x.astype(np.float64) for x in arguments(values, dtype, width))
    want = oracle(*exact)
    return want, rms_response(oracle, exact, name=f"causal conv/{values}/{width}", result=want)


# What is answered


@cache
def _program(convolution: Convolution, dtype: Dtype, layout: Layout | None) -> Callable[..., tuple[Any, ...]]:
    """Both outputs and all gradients; `dtype` keeps apart what x64 makes different."""
    call = partial(convolution, **keywords(layout))

    def outputs_and_gradients(*arguments: jax.Array, **given: jax.Array) -> tuple[Any, ...]:
        outputs, pullback = jax.vjp(partial(call, **given), *arguments[:3])
        return *outputs, *pullback(arguments[3:])

    return jit_for_few_runs(outputs_and_gradients)


def measured(
    convolution: Convolution,
    dtype: Dtype,
    values: str,
    *,
    ranks: Layout | int | None,
    width: int = W,
    packing: str = "",
) -> dict[tuple[str, int], float]:
    """The units of every block on every rank, as `{("dx last", 2): 0.4, ...}`; without ranks on one device, as rank 0.

    A piece counts as a rank. What all ranks hold alike is read from each rank's own device. Sums are claimed to be in
    f32 where x is bf16.
    """
    layout = over(ranks) if isinstance(ranks, int) else ranks
    with x64(dtype == "f64"):
        placed = [
            place(x, layout, over_tokens=name in OF_TOKENS)
            for name, x in zip(NAMES, arguments(values, dtype, width), strict=True)
        ]
        ids = {name: place(x, layout, over_tokens=True) for name, x in documents(packing).items()}
        got = _program(convolution, dtype, layout)(*placed, **ids)
        pieces = [per_rank(x, layout, over_tokens=name in OF_TOKENS) for name, x in zip(QUANTITIES, got, strict=True)]
    arithmetic: Dtype = "f32" if dtype == "bf16" else dtype
    found = {}
    for quantity, of_ranks, want, kappa in zip(QUANTITIES, pieces, *truth(values, dtype, width, packing), strict=True):
        for rank, x in enumerate(of_ranks):
            if x.dtype != NUMPY[dtype]:
                raise TypeError(f"{quantity} of rank {rank} is {x.dtype} where the inputs are {dtype}")
            held = np.s_[:, rank * x.shape[1] : (rank + 1) * x.shape[1]] if quantity in OF_TOKENS else np.s_[:]
            mine = (blocks(quantity, y, width - 1) for y in (x.astype(np.float64), want[held], kappa[held]))
            for (name, y), right, moves in zip(*mine, strict=True):
                off = units(
                    *(y, right[1], moves[1]),
                    u_c=UNIT_ROUNDOFF[arithmetic],
                    u_out=UNIT_ROUNDOFF[dtype],
                    floor=SMALLEST_NORMAL[arithmetic],
                )
                found[name, rank] = float(off.max())
    return found


def blocks(quantity: str, x: np.ndarray, halo: int) -> list[tuple[str, np.ndarray]]:
    """What a rank holds, in blocks `[rows, tokens, 1, D]` with their names; of dweight, each tap is a row."""
    if quantity == "dweight":
        return [(quantity, x.T[:, None, None])]
    if quantity not in OF_TOKENS:
        return [(quantity, x[:, :, None])] if halo else []
    edges = sorted({0, halo, x.shape[1] - halo, x.shape[1]})
    names = ("first", "between", "last") if halo else ("between",)
    return [(f"{quantity} {name}", x[:, a:b, None]) for name, (a, b) in zip(names, pairwise(edges), strict=True)]
