"""Right code that is written otherwise must be green: a false alarm costs the suite its readers.

Four correct implementations with rounding errors unlike ours, through the public check.
"""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array

from implementations.chunked import chunk_step, join, prepare
from implementations.context_parallel.affine import apply, compose, of_chunk
from implementations.contract import Implementation
from parity.matrix import EVERY, SHARPEST, Case
from parity.other_code.textbook import TEXTBOOK, TEXTBOOK_OVER_RANKS, textbook
from parity.packing import PACKINGS
from parity.problem import Problem
from parity.shapes import RAGGED
from parity.verdict import judge


def _in_bf16(x: Array, y: Array) -> Array:
    """Operands rounded to bf16, products accumulated in f32: one pass of a matrix unit."""
    return jnp.matmul(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


def _scan_of_chunk_maps(*inputs: Array, scale: float | None, chunk_size: int) -> tuple[Array, Array]:
    """An associative scan over the affine maps of the chunks: products of K x K matrices in a tree."""
    *tokens, h0 = inputs
    chunks = prepare(*tokens, scale=scale, chunk_size=chunk_size)
    maps = jax.lax.associative_scan(lambda earlier, later: compose(later, earlier), of_chunk(chunks))
    after = apply(maps, h0)
    entering = jnp.concatenate([h0[None], after[:-1]])
    _, o = jax.vmap(chunk_step)(entering, chunks)
    return join(o, inputs[2].shape[1]), after[-1]


ON_ONE_DEVICE = (
    TEXTBOOK,
    Implementation("bf16_products", partial(textbook, product=_in_bf16), arithmetic={"bf16": "bf16"}),
    Implementation("scan_of_chunk_maps", _scan_of_chunk_maps, arithmetic={"f64": "f64", "f32": "f32"}),
)
CASES = [
    Case(right, Problem(regime, RAGGED, dtype), ranks)
    for rights, regimes, ranks in ((ON_ONE_DEVICE, EVERY, 1), ((TEXTBOOK_OVER_RANKS,), SHARPEST, 4))
    for right in rights
    for dtype in right.arithmetic
    for regime in regimes
] + [
    Case(right, Problem("long_memory", RAGGED, dtype, packing=packing), ranks)
    for right, ranks in ((TEXTBOOK, 1), (TEXTBOOK_OVER_RANKS, 4))
    for dtype in right.arithmetic
    for packing in PACKINGS
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_right_code_is_green(case: Case) -> None:
    verdict = judge(case)
    wrong = {
        f"{quantity} on rank {rank}": finding.failure or finding.worst_units
        for (rank, quantity), finding in verdict.findings.items()
        if not finding.passes
    }
    assert not wrong
