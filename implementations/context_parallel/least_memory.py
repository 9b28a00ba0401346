"""Context parallelism that holds the least: no factor of a chunk outlives its segment, forward or backward.

A rank goes through its tokens in segments of a few chunks and computes their factors each time it needs them. From the
forward pass it keeps the state that enters each segment, and A of all its tokens.

The backward has an exchange of its own, and no map is differentiated. The cotangent L of the state that leaves a rank
reaches the state that enters it as `A^T L + b`, with b what the rank's own reads want of it. So each rank finds b from
its last segment to its first, the ranks exchange `(A^T, b)` from the last to the first, and each differentiates its
segments with the cotangent that arrives.

For long ranks. The price is time: factors are computed four times, where a scheme that keeps them computes them once.
"""

from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from implementations.arithmetic import accumulation_dtype
from implementations.chunked import Factors, Invert, Walk, join, prepare, scan
from implementations.context_parallel.affine import Affine, no_chunk
from implementations.context_parallel.exchange import all_gather_prefix
from implementations.context_parallel.ranks import Axes, are_manual, check_call, manual, starts_on_rank
from implementations.context_parallel.reverse_fold import reverse_fold
from implementations.contract import Implementation
from implementations.ut_inversion.ladder import ladder

State = Float[Array, "B Hv K V"]
Tokens = tuple[Any, ...]  # q, k, v, g, beta, and which are the first of a document, or None
EVERYWHERE = PartitionSpec()


def least_memory(
    q: Float[Array, "B T Hk K"],
    k: Float[Array, "B T Hk K"],
    v: Float[Array, "B T Hv V"],
    g: Float[Array, "B T Hv"],
    beta: Float[Array, "B T Hv"],
    initial_state: Float[Array, "B Hv K V"],
    *,
    scale: float | None = None,
    chunk_size: int = 64,
    mesh: Mesh,
    axes: Axes,
    segment_ids: Int[Array, "B T"] | None = None,
    chunks_a_segment: int = 8,
    invert: Invert = ladder,
    walk: Walk = scan,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    """`(o, final_state)` under the contract, T sharded over `axes`; every rank returns the same final state.

    A rank holds a state for each segment, and all that `chunked` holds of one segment: with few chunks the first is
    more, with many the second. It is differentiable in reverse mode.
    Raises ValueError as `two_phase` does, and on `chunks_a_segment` below 1.
    """
    inputs = (q, k, v, g, beta, initial_state)
    check_call(*inputs, chunk_size=chunk_size, mesh=mesh, axes=axes, segment_ids=segment_ids)
    if not isinstance(chunks_a_segment, Integral) or isinstance(chunks_a_segment, bool) or chunks_a_segment < 1:
        raise ValueError(f"chunks_a_segment must be a positive integer; got {chunks_a_segment!r}")
    rank = _Rank(
        factors=lambda tokens: prepare(*tokens[:5], scale=scale, chunk_size=chunk_size, invert=invert, first=tokens[5]),
        walk=walk,
        axes=axes,
        tokens_a_segment=chunk_size * chunks_a_segment,
    )
    of_tokens, of_rank = PartitionSpec(None, axes), PartitionSpec(axes)
    tokens = (of_tokens,) * 5
    forward = manual(
        rank.forward, mesh, axes, (*tokens, of_tokens, EVERYWHERE), (of_tokens, EVERYWHERE, of_rank, of_rank)
    )
    backward = manual(
        rank.backward, mesh, axes, (*tokens, of_tokens, of_rank, of_rank, of_tokens, EVERYWHERE), (*tokens, EVERYWHERE)
    )

    @jax.custom_vjp
    def call(*inputs: Any) -> tuple[Array, Array]:
        return forward(*inputs)[:2]

    def kept(*inputs: Any) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
        o, final_state, entering, A = forward(*inputs)
        return (o, final_state), (*inputs[:6], entering, A)

    def gradients(residuals: tuple[Any, ...], cotangents: tuple[Array, Array]) -> tuple[Any, ...]:
        do, dfinal_state = cotangents
        if are_manual(axes):  # each rank has a final state of its own, and adds to the gradient of the initial one
            dfinal_state = jax.lax.psum(dfinal_state, axes)
        *of_inputs, dh0 = backward(*residuals, do, dfinal_state)
        if are_manual(axes):
            dh0 = jnp.where(jax.lax.axis_index(axes) == 0, dh0, 0)
        return *of_inputs, None, dh0

    call.defvjp(kept, gradients)
    o, final_state = call(q, k, v, g, beta, segment_ids, initial_state.astype(accumulation_dtype(v.dtype)))
    return o, final_state.astype(initial_state.dtype)


class _Rank(NamedTuple):
    """What runs on one rank, inside a `shard_map` over `axes`."""

    factors: Callable[[Tokens], Factors]
    walk: Walk
    axes: Axes
    tokens_a_segment: int

    def forward(self, *inputs: Any) -> tuple[Array, State, Float[Array, "segments B Hv K V"], Array]:
        """`o` of the rank's tokens, the final state, the state that enters each segment, and A with a leading 1."""
        *tokens, segment_ids, h0 = inputs
        segments = _Segments((*tokens, starts_on_rank(segment_ids, self.axes)), self.tokens_a_segment)
        A, B = self._map(segments)
        entering, final_state = all_gather_prefix((A, B), h0, self.axes)

        def replay(carry: tuple[State, Array], index: Array) -> tuple[tuple[State, Array], State]:
            h, o = carry
            leaving, reads = self._segment(h, segments.at(index))
            return (leaving, segments.put(o, reads, index)), h

        o = jnp.zeros_like(segments.padded[2])
        (_, o), entering_segments = jax.lax.scan(replay, (entering, o), segments.indices)
        return segments.cut(o), final_state, entering_segments, A[None]

    def backward(self, *given: Any) -> tuple[Array, ...]:
        """The gradients of q, k, v, g, beta and the initial state."""
        *tokens, segment_ids, entering_segments, (A,), do, dfinal_state = given
        segments = _Segments((*tokens, starts_on_rank(segment_ids, self.axes), do), self.tokens_a_segment)
        b = self._cotangent_of_entering(segments, entering_segments[0])
        transposed = jnp.swapaxes(A, -1, -2), b
        dleaving, dh0 = all_gather_prefix(transposed, dfinal_state, self.axes, reverse=True)

        def differentiate(carry: tuple[State, Tokens], of_segment: tuple[State, Array]) -> Any:
            (L, gradients), (h, index) = carry, of_segment
            *inputs, first, do = segments.at(index)
            _, pullback = jax.vjp(lambda h, inputs: self._segment(h, (*inputs, first)), h, tuple(inputs))
            L, found = pullback((L, do))
            return (
                L,
                tuple(segments.put(whole, part, index) for whole, part in zip(gradients, found, strict=True)),
            ), None

        nothing = tuple(jnp.zeros_like(x) for x in segments.padded[:5])
        (_, gradients), _ = jax.lax.scan(
            differentiate, (dleaving, nothing), (entering_segments, segments.indices), reverse=True
        )
        return (*(segments.cut(gradient) for gradient in gradients), dh0)

    def _segment(self, h: State, tokens: Tokens) -> tuple[State, Float[Array, "B T Hv V"]]:
        leaving, o = self.walk(h, self.factors(tokens))
        return leaving, join(o, tokens[2].shape[1]).astype(tokens[2].dtype)

    def _map(self, segments: "_Segments") -> Affine:
        """`(A, B)` of all tokens, from the last segment to the first."""

        def body(later: Affine, index: Array) -> tuple[Affine, None]:
            return reverse_fold(self.factors(segments.at(index)), later), None

        one = jax.eval_shape(self.factors, segments.at(0))
        return jax.lax.scan(body, no_chunk(one), segments.indices, reverse=True)[0]

    def _cotangent_of_entering(self, segments: "_Segments", like: State) -> State:
        """What the rank's reads want of the state that enters it; of the rule, which is linear in the state."""

        def body(L: State, index: Array) -> tuple[State, None]:
            *inputs, do = segments.at(index)
            _, pullback = jax.vjp(lambda h: self._segment(h, tuple(inputs)), jnp.zeros_like(L))
            return pullback((L, do))[0], None

        return jax.lax.scan(body, jnp.zeros_like(like), segments.indices, reverse=True)[0]


class _Segments:
    """Arrays `[B, T, ...]` in pieces of the same number of tokens: read and written in place, never transposed."""

    def __init__(self, arrays: tuple[Any, ...], tokens: int) -> None:
        self._whole = arrays[0].shape[1]
        count = -(-self._whole // tokens)
        self._tokens = min(tokens, self._whole)
        self.indices = jnp.arange(count)
        missing = count * self._tokens - self._whole
        # g = k = v = q = 0 is a no-op of the rule. (A tree map passes by None.)
        self.padded = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, missing), *((0, 0),) * (x.ndim - 2))), arrays)

    def at(self, index: Array | int) -> tuple[Any, ...]:
        here = index * self._tokens
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, here, self._tokens, axis=1), self.padded)

    def put(self, whole: Array, part: Array, index: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(whole, part, index * self._tokens, axis=1)

    def cut(self, x: Array) -> Array:
        return x[:, : self._whole]


LEAST_MEMORY = Implementation(
    "least_memory", partial(least_memory, chunks_a_segment=2), context_parallel=True, packed=True
)
