"""The recurrence over chunks as a kernel: the state stays in VMEM from the first chunk to the last.

A grid cell is one chunk of a few heads; heads in parallel, chunks one after the other. The backward keeps the states
that entered the chunks, and walks them in reverse with the state's cotangent in VMEM (thread 4). What is parallel over
chunks is left to XLA, before and behind.

Operands of products keep the dtype that the factors have, sums and the state that of the state: factors in bf16 take
one pass of a matrix unit, in f32 six (`HIGHEST`). Three may stay in f32 where the others are in bf16. `u` is no
operand: `w h` is subtracted from it before anything is rounded, and its cotangent is rounded nowhere. `w`, `k_decayed`
and what is written are taken in two parts of bf16: two passes each, and three where both operands have two, as the
state's cotangent has where it meets `k_decayed`.
"""

import functools
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from implementations.arithmetic import product_precision
from implementations.chunked import Factors, State
from implementations.pallas.interpreter import is_interpreted
from implementations.ut_inversion.products import in_two_parts

Reads = Float[Array, "N B H C V"]

HEADS_FORWARD, HEADS_BACKWARD = 8, 4  # of one grid cell, at most
VMEM = 19 * 2**19  # bytes of a grid cell's blocks, at most: the rest of a kernel's 16 MiB is for what it computes


def walk(
    h: State, chunks: Factors, *, heads_forward: int = HEADS_FORWARD, heads_backward: int = HEADS_BACKWARD
) -> tuple[State, Reads]:
    """The state after the last chunk, and what the tokens read, in the dtype of `chunks.attention`.

    `h` enters the first chunk. Its dtype is what sums are kept in. The number of heads need not be a multiple of those
    of a grid cell, which are as many as given, or as fit into VMEM.
    """
    final_state, o = _walked(h, chunks, heads_forward, heads_backward)
    return final_state, o.reshape(chunks.u.shape)


def end_of_walk(
    h: State, chunks: Factors, *, heads_forward: int = HEADS_FORWARD, heads_backward: int = HEADS_BACKWARD
) -> State:
    """The state after the last chunk. Nothing is read, and `q_decayed` and `attention` are not looked at."""
    unread = chunks._replace(q_decayed=None, attention=None)  # type: ignore[arg-type]
    return _walked(h, unread, heads_forward, heads_backward)[0]


def _walked(h: Array, chunks: Factors, heads_forward: int, heads_backward: int) -> tuple[Array, Any]:
    heads = math.prod(h.shape[:2])
    flat = jax.tree.map(lambda x: x.reshape(x.shape[0], heads, *x.shape[3:]), chunks)
    flat = flat._replace(decay=flat.decay.astype(h.dtype)[..., None, None])
    walked = _differentiable(min(heads_forward, heads), min(heads_backward, heads))
    final_state, o = walked(h.reshape(heads, *h.shape[2:]), flat)
    return final_state.reshape(h.shape), o


@functools.cache
def _differentiable(heads_forward: int, heads_backward: int) -> Any:
    forward = functools.partial(_forward, tile=heads_forward)

    def call(h: Array, chunks: Factors) -> tuple[Array, Any]:
        return forward(h, chunks, keep=False)[:2]

    def kept(h: Array, chunks: Factors) -> tuple[tuple[Array, Any], tuple[Any, Factors]]:
        final_state, o, entering = forward(h, chunks, keep=True)
        return (final_state, o), (entering, chunks)

    def backward(residuals: tuple[Array, Factors], cotangents: tuple[Array, Any]) -> tuple[Array, Factors]:
        return _backward(*residuals, *cotangents, tile=heads_backward)

    function = jax.custom_vjp(call)
    function.defvjp(kept, backward)
    return function


def _forward(h: Array, chunks: Factors, *, keep: bool, tile: int) -> tuple[Array, Any, Any]:
    """The final state, the reads or None, and the states that enter the chunks where these are to be kept."""
    count, heads = chunks.u.shape[:2]
    o = None if chunks.attention is None else jax.ShapeDtypeStruct(chunks.u.shape, chunks.attention.dtype)
    entering = jax.ShapeDtypeStruct((count, *h.shape), h.dtype) if keep else None
    tile = _that_fit(tile, h, h, chunks, o, entering)
    return pl.pallas_call(
        _forward_kernel,
        name="scan_forward",
        grid=(pl.cdiv(heads, tile), count),
        in_specs=[_of_heads(h, tile), jax.tree.map(lambda x: _of_chunk(x, tile), chunks)],
        out_specs=(_of_heads(h, tile), *(x and _of_chunk(x, tile) for x in (o, entering))),
        out_shape=(jax.ShapeDtypeStruct(h.shape, h.dtype), o, entering),
        scratch_shapes=[pltpu.VMEM((tile, *h.shape[1:]), h.dtype)],
        **_in_order(),
    )(h, chunks)


def _backward(
    entering: Array, chunks: Factors, dfinal_state: Array, do: Array | None, *, tile: int
) -> tuple[Array, Factors]:
    count, heads = chunks.u.shape[:2]

    def reverse(x: Any) -> pl.BlockSpec:
        return _of_chunk(x, tile, last=count - 1)

    tile = _that_fit(tile, entering, chunks, dfinal_state, do, dfinal_state, chunks)
    in_reverse = jax.tree.map(reverse, chunks)
    return pl.pallas_call(
        _backward_kernel,
        name="scan_backward",
        grid=(pl.cdiv(heads, tile), count),
        in_specs=[reverse(entering), in_reverse, _of_heads(dfinal_state, tile), None if do is None else reverse(do)],
        out_specs=(_of_heads(dfinal_state, tile), in_reverse),
        out_shape=jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (dfinal_state, chunks)),
        scratch_shapes=[pltpu.VMEM((tile, *dfinal_state.shape[1:]), dfinal_state.dtype)],
        **_in_order(),
    )(entering, chunks, dfinal_state, do)


def _that_fit(heads: int, *arrays: Any) -> int:
    """No more heads than given, and of whose blocks two each fit into VMEM: one is used while the next one comes."""
    return max(1, min(heads, VMEM // (2 * sum(map(_in_vmem, jax.tree.leaves(arrays))))))


def _in_vmem(x: Any) -> int:
    """Bytes of one head's matrix, which lies there in tiles of 8 x 128 words of 32 bits."""
    rows, columns = x.shape[-2:]
    in_a_tile = 32 // x.dtype.itemsize
    return pl.cdiv(rows, in_a_tile) * in_a_tile * pl.cdiv(columns, 128) * 128 * x.dtype.itemsize


def _of_heads(h: Any, tile: int) -> pl.BlockSpec:
    return pl.BlockSpec((tile, *h.shape[1:]), lambda heads, _: (heads, 0, 0))


def _of_chunk(x: Any, tile: int, last: int | None = None) -> pl.BlockSpec:
    """The chunk of the grid's step, or that many before the `last` one."""
    return pl.BlockSpec(
        (None, tile, *x.shape[2:]), lambda heads, step: (step if last is None else last - step, heads, 0, 0)
    )


def _in_order() -> dict[str, Any]:
    """Tiles of heads know nothing of each other; chunks follow one another."""
    return {
        "compiler_params": pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        "interpret": is_interpreted(),
    }


def _forward_kernel(h0: Any, chunk: Factors, final_state: Any, o: Any, entering: Any, state: Any) -> None:
    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        state[...] = h0[...]

    h = state[...]
    low = h.astype(_narrow(chunk))
    dot = functools.partial(_dot, narrow=low.dtype, out=h.dtype)
    written = chunk.u[...] - dot(chunk.w[...], low)
    if entering is not None:
        entering[...] = h
    if o is not None:
        read = dot(chunk.q_decayed[...], low) + dot(chunk.attention[...], written)
        o[...] = read.astype(o.dtype)
    state[...] = chunk.decay[...] * h + dot(chunk.k_decayed[...], written, transpose_a=True)

    @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
    def _() -> None:
        final_state[...] = state[...]


def _backward_kernel(
    entering: Any, chunk: Factors, dfinal_state: Any, do: Any, dh0: Any, d: Factors, cotangent: Any
) -> None:
    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        cotangent[...] = dfinal_state[...]

    h, dh = entering[...], cotangent[...]
    low, dh_low = (x.astype(_narrow(chunk)) for x in (h, dh))
    dot = functools.partial(_dot, narrow=low.dtype, out=h.dtype)
    written = chunk.u[...] - dot(chunk.w[...], low)

    dwritten = dot(chunk.k_decayed[...], dh.astype(chunk.k_decayed.dtype))
    dh_before = chunk.decay[...] * dh
    if do is not None:
        dwritten += dot(chunk.attention[...], do[...], transpose_a=True)
        dh_before += dot(chunk.q_decayed[...], do[...], transpose_a=True)
        d.q_decayed[...] = dot(do[...], low, transpose_b=True).astype(low.dtype)
        d.attention[...] = dot(do[...], written, transpose_b=True).astype(low.dtype)
    d.u[...] = dwritten.astype(d.u.dtype)
    du = dwritten.astype(low.dtype)
    d.w[...] = -dot(du, low, transpose_b=True).astype(d.w.dtype)
    d.k_decayed[...] = dot(written, dh_low, transpose_b=True).astype(d.k_decayed.dtype)
    d.decay[...] = jnp.sum(dh * h, axis=(1, 2), keepdims=True)
    cotangent[...] = dh_before - dot(chunk.w[...], du, transpose_a=True)

    @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
    def _() -> None:
        dh0[...] = cotangent[...]


def _narrow(chunk: Factors) -> jnp.dtype:
    """The narrowest dtype of the factors, of which some may be absent."""
    return min((x.dtype for x in jax.tree.leaves(chunk)), key=lambda dtype: dtype.itemsize)


def _dot(
    a: Array, b: Array, *, narrow: jnp.dtype, out: jnp.dtype, transpose_a: bool = False, transpose_b: bool = False
) -> Array:
    """Products of two stacks of matrices, summed in `out`; of an operand that is not `narrow`, in its two parts."""
    contracted = (1 if transpose_a else 2,), (2 if transpose_b else 1,)
    of_a, of_b = ((x,) if x.dtype == narrow else in_two_parts(x) for x in (a, b))
    multiply = functools.partial(
        jax.lax.dot_general,
        dimension_numbers=(contracted, ((0,), (0,))),
        precision=product_precision(narrow),
        preferred_element_type=out,
    )
    # The product of the two low parts is left out, and what is small is summed first.
    passes = [multiply(x, y) for i, x in enumerate(of_a) for j, y in enumerate(of_b) if i + j < 2]
    return functools.reduce(operator.add, reversed(passes))
