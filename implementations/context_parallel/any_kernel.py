"""Any kernel becomes context parallel, without a line of it changed.

The map of a stretch of tokens, `h' = A h + B`, is itself a run of the rule: on values `[v | 0]` and from the state
`[0 | I]` its final state is `[B | A]`. So a kernel that knows nothing but an initial and a final state publishes its
own map. The price is a second run of it, on V + K columns.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from implementations.arithmetic import accumulation_dtype
from implementations.chunked import CHUNKED
from implementations.context_parallel.affine import Affine
from implementations.context_parallel.exchange import Exchange, all_gather_prefix
from implementations.context_parallel.ranks import check_call, over_ranks, starts_on_rank
from implementations.contract import Implementation
from implementations.sequential import SEQUENTIAL

Kernel = Callable[..., tuple[Array, Array]]


def context_parallel(kernel: Implementation, *, exchange: Exchange = all_gather_prefix) -> Implementation:
    """The implementation `<kernel>_over_ranks`: `kernel` on each rank, once for its map and once for its tokens.

    It claims what `kernel` claims, and is differentiated as `kernel` is: by its `vjp` where it brings one. A kernel
    that does not support K != V is asked for A and for B in a run of its own each, any other once with V + K columns.
    Raises ValueError where `kernel` is context parallel already, or cannot be traced by jax, and TypeError where it is
    no `Implementation`, or when it returns anything but `(o, final_state)`, like v and the initial state.
    """
    if not isinstance(kernel, Implementation):
        raise TypeError(f"kernel must be an Implementation, which says what it supports; got {kernel!r}")
    if kernel.context_parallel or not kernel.traceable:
        what = "is context parallel already" if kernel.context_parallel else "cannot be traced by jax"
        raise ValueError(f"{kernel.name} {what}: what becomes context parallel is a jax kernel for one device")
    map_of = map_in_one_run if "unequal_head_sizes" in kernel.supports else map_in_two_runs

    def call(
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
        axes: tuple[str, ...],
        segment_ids: Int[Array, "B T"] | None = None,
    ) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
        inputs = (q, k, v, g, beta, initial_state)
        check_call(*inputs, chunk_size=chunk_size, mesh=mesh, axes=axes, segment_ids=segment_ids)
        if segment_ids is not None and not kernel.packed:
            raise ValueError(
                f"{kernel.name} knows no segment_ids: give each document a row, or a kernel that is packed"
            )

        def local(*inputs: Any) -> tuple[Array, Array]:
            *tokens, h0, segments = inputs
            run = _differentiable(kernel, segments, scale=scale, chunk_size=chunk_size)
            first = starts_on_rank(segments, axes)
            A, B = map_of(run, *tokens)
            entering, final_state = exchange((_if_it_goes_on(A, first), B), h0, axes)
            return run(*tokens, _if_it_goes_on(entering, first))[0], final_state

        return over_ranks(local, mesh, axes)(*inputs, segment_ids)

    return replace(kernel, name=f"{kernel.name}_over_ranks", call=call, context_parallel=True, vjp=None, stages=None)


def _if_it_goes_on(x: Float[Array, "B H K _"], first: Bool[Array, "B T"] | None) -> Float[Array, "B H K _"]:
    """The state that enters a rank, or A of its map, and 0 where its first token is the first of a further document:
    the kernel, which sees the rank's tokens alone, cannot know that.
    """
    return x if first is None else jnp.where(first[:, :1, None, None], 0, x)


def map_in_one_run(run: Kernel, q: Array, k: Array, v: Array, g: Array, beta: Array) -> Affine:
    """`(A, B)` of all tokens, in the dtype that sums are kept in."""
    K, V = k.shape[-1], v.shape[-1]
    nothing = jnp.zeros((*v.shape[:-1], K), v.dtype)
    zero, identity = _states(K, v)
    _, end = run(q, k, jnp.concatenate([v, nothing], axis=-1), g, beta, jnp.concatenate([zero, identity], axis=-1))
    return end[..., V:], end[..., :V]


def map_in_two_runs(run: Kernel, q: Array, k: Array, v: Array, g: Array, beta: Array) -> Affine:
    """The same where K = V and the kernel takes nothing else: the columns of a state know nothing of each other."""
    zero, identity = _states(k.shape[-1], v)
    return run(q, k, jnp.zeros_like(v), g, beta, identity)[1], run(q, k, v, g, beta, zero)[1]


def _states(K: int, v: Array) -> tuple[Array, Array]:
    """Zero `[B, Hv, K, V]` and the identity `[B, Hv, K, K]`."""
    batch, _, heads, V = v.shape
    dtype = accumulation_dtype(v.dtype)
    identity = jnp.broadcast_to(jnp.eye(K, dtype=dtype), (batch, heads, K, K))
    return jnp.zeros((batch, heads, K, V), dtype), identity


def _differentiable(kernel: Implementation, segment_ids: Array | None, **keywords: object) -> Kernel:
    """`kernel.call` of the six inputs, with the gradients that the record brings."""

    def of_documents(segments: Array | None) -> dict[str, Any]:
        return keywords if segments is None else {**keywords, "segment_ids": segments}

    def call(segments: Array | None, *inputs: Array) -> tuple[Array, Array]:
        returned = kernel.call(*inputs, **of_documents(segments))
        return _checked(kernel.name, returned, v=inputs[2], initial_state=inputs[5])

    if kernel.vjp is None:
        return partial(call, segment_ids)
    vjp = kernel.vjp

    def forward(*inputs: Any) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
        return call(*inputs), inputs

    def backward(kept: tuple[Any, ...], cotangents: tuple[Array, Array]) -> tuple[Any, ...]:
        segments, *inputs = kept
        return None, *vjp(*inputs, *cotangents, **of_documents(segments))

    function = jax.custom_vjp(call)
    function.defvjp(forward, backward)
    return partial(function, segment_ids)


def _checked(name: str, returned: Any, *, v: Array, initial_state: Array) -> tuple[Array, Array]:
    wanted = [(x.shape, x.dtype) for x in (v, initial_state)]
    several = isinstance(returned, tuple | list) and all(hasattr(x, "dtype") for x in returned)
    got = [(x.shape, x.dtype) for x in returned] if several else f"{type(returned).__name__}: {returned!r}"
    if got != wanted:
        forms = " and ".join(f"{dtype}{list(shape)}" for shape, dtype in wanted)
        raise TypeError(f"{name} must return (o, final_state), like v and the initial state {forms}; it returned {got}")
    return tuple(returned)


CHUNKED_OVER_RANKS, SEQUENTIAL_OVER_RANKS = context_parallel(CHUNKED), context_parallel(SEQUENTIAL)
