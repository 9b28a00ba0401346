"""Right code that is written otherwise must be green: a false alarm costs the suite its readers.

Three correct implementations with rounding errors unlike ours, through the public check.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array

from implementations.chunked import chunk_step, join, prepare
from implementations.context_parallel.affine import apply, compose, of_chunk
from implementations.contract import Implementation
from parity.matrix import EVERY, Case
from parity.problem import Problem
from parity.shapes import RAGGED
from parity.verdict import judge

Call = Callable[..., tuple[Array, Array]]


def _textbook_chunks(product: Callable[[Array, Array], Array]) -> Call:
    """The chunked form with `D_ij = exp(G_i - G_j)` as a difference of cumulative sums, as published kernels have it.

    Its dg is what remains of terms that cancel: without `oracles.conditioning.decay_gradient_terms` it would be red
    by 5e4 limits where the decay is strong.
    """

    def call(
        q: Array, k: Array, v: Array, g: Array, beta: Array, h0: Array, *, scale: float | None, chunk_size: int
    ) -> tuple[Array, Array]:
        batch, tokens, key_heads, key_size = q.shape
        heads, chunks = v.shape[2], -(-tokens // chunk_size)
        wide = jnp.promote_types(v.dtype, jnp.float32)

        def split(x: Array) -> Array:
            x = jnp.pad(x, [(0, 0), (0, chunks * chunk_size - tokens)] + [(0, 0)] * (x.ndim - 2))
            return jnp.swapaxes(x, 1, 2).reshape(batch, heads, chunks, chunk_size, *x.shape[3:])

        q, k = (jnp.repeat(x.astype(wide), heads // key_heads, axis=2) for x in (q, k))
        Q, K, V, b, G = (split(x) for x in (q, k, v.astype(wide), beta[..., None].astype(wide), g.astype(wide)))
        Q, G = Q * (key_size**-0.5 if scale is None else scale), jnp.cumsum(G, axis=-1)
        lower = jnp.tril(jnp.ones((chunk_size, chunk_size), dtype=bool))
        D = jnp.where(lower, jnp.exp(jnp.where(lower, G[..., :, None] - G[..., None, :], 0.0)), 0.0)
        S = jnp.tril(product(b * K, jnp.swapaxes(K, -1, -2)) * D, -1)
        T = jnp.linalg.inv(jnp.eye(chunk_size, dtype=wide) + S)
        G = G[..., None]
        u, w = product(T, b * V), product(T, b * jnp.exp(G) * K)
        inside = product(Q, jnp.swapaxes(K, -1, -2)) * D

        def step(h: Array, x: tuple[Array, ...]) -> tuple[Array, Array]:
            Q, K, u, w, G, inside = x
            new = u - product(w, h)
            o = product(Q * jnp.exp(G), h) + product(inside, new)
            last = G[..., -1:, :]
            return jnp.exp(last) * h + product(jnp.swapaxes(K * jnp.exp(last - G), -1, -2), new), o

        h, o = jax.lax.scan(step, h0.astype(wide), [jnp.moveaxis(x, 2, 0) for x in (Q, K, u, w, G, inside)])
        o = jnp.moveaxis(o, 0, 2).reshape(batch, heads, chunks * chunk_size, -1)[:, :, :tokens]
        return jnp.swapaxes(o, 1, 2).astype(v.dtype), h.astype(h0.dtype)

    return call


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


WIDE_DTYPES = {"f64": "f64", "f32": "f32"}
RIGHT_CODE = (
    Implementation("textbook_chunks", _textbook_chunks(jnp.matmul), arithmetic=WIDE_DTYPES),
    Implementation("bf16_products", _textbook_chunks(_in_bf16), arithmetic={"bf16": "bf16"}),
    Implementation("scan_of_chunk_maps", _scan_of_chunk_maps, arithmetic=WIDE_DTYPES),
)


CASES = [
    Case(right, Problem(regime, RAGGED, dtype), 1)
    for right in RIGHT_CODE
    for dtype in right.arithmetic
    for regime in EVERY
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_right_code_is_green(case: Case) -> None:
    verdict = judge(case)
    wrong = {
        quantity: finding.failure or finding.worst_units
        for (_, quantity), finding in verdict.findings.items()
        if not finding.passes
    }
    assert not wrong
