"""The chunked form: WY factors of all chunks in parallel, then a `lax.scan` over chunks.

Yang et al., "Parallelizing Linear Transformers with the Delta Rule" (2024), with the gate of "Gated Delta
Networks" (2024, section 3.3). With `G` the cumulative `g` inside a chunk and `D_ij = exp(G_i - G_j)`::

    S = strict_lower(diag(beta) K K^T * D)      T = (I + S)^-1
    u = T diag(beta) V                          w = T diag(beta) diag(e^G) K
    h' = e^{G_C} h + K~^T (u - w h)             K~_i = e^{G_C - G_i} k_i
    o  = diag(e^G) Q h + tril(Q K^T * D) (u - w h)          with Q already scaled
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from implementations.arithmetic import accumulation_dtype, einsum, repeat_heads
from implementations.contract import Implementation, check_inputs
from implementations.segments import numbered, starts
from implementations.ut_inversion.substitution import substitution

State = Float[Array, "B H K V"]
Invert = Callable[[Float[Array, "... C C"]], Float[Array, "... C C"]]


class Factors(NamedTuple):
    """What a chunk needs to know of its tokens: everything but the state that enters it.

    `w, q_decayed, k_decayed [..., C, K]`, `u [..., C, V]`, `attention [..., C, C]`, `decay [...]`.
    """

    w: Array
    u: Array
    q_decayed: Array  # diag(e^G) Q
    k_decayed: Array  # K~
    attention: Array  # tril(Q K^T * D)
    decay: Array  # e^{G_C}


# The recurrence over chunks: from the state that enters the first one, the state after the last and all reads.
Walk = Callable[[State, Factors], tuple[State, Float[Array, "N B H C V"]]]


def prepare(
    q: Float[Array, "B T Hk K"],
    k: Float[Array, "B T Hk K"],
    v: Float[Array, "B T Hv V"],
    g: Float[Array, "B T Hv"],
    beta: Float[Array, "B T Hv"],
    *,
    scale: float | None,
    chunk_size: int,
    invert: Invert = substitution,
    first: Bool[Array, "B T"] | None = None,
) -> Factors:
    """The factors of every chunk, `[N, B, Hv, ...]` with the chunks first. `invert` is the UT transform.

    A ragged tail is padded with g = k = v = q = 0, which is a no-op of the rule. `first`: whether a token is the
    first of a further document.
    """
    stages = prepare_in_stages(q, k, v, g, beta, scale=scale, chunk_size=chunk_size, invert=invert, first=first)
    return stages[-1]


def prepare_in_stages(
    q: Array,
    k: Array,
    v: Array,
    g: Array,
    beta: Array,
    *,
    scale: float | None,
    chunk_size: int,
    invert: Invert = substitution,
    first: Bool[Array, "B T"] | None = None,
) -> tuple[Float[Array, "N B Hv C C"], Float[Array, "N B Hv C C"], Factors]:
    """`S`, `T` and the factors of every chunk: `prepare`, with what it computes on the way."""
    dtype = accumulation_dtype(v.dtype)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    # Widen before repeating, so that the gradients of a group of heads are summed in the wide dtype too.
    q, k, v, g, beta = (x.astype(dtype) for x in (q, k, v, g, beta))
    q, k = repeat_heads(q, v.shape[2]), repeat_heads(k, v.shape[2])
    q, k, v, g, beta = (_split(x, chunk_size) for x in (q, k, v, g, beta))
    q = scale * q

    G = jnp.cumsum(g, axis=-1)
    between = segment_sums(g)
    if first is not None:
        G, between = _within_documents(G, between, _split(first[..., None], chunk_size))
    D = jnp.exp(between)
    S = jnp.tril(beta[..., None] * einsum("nbhik,nbhjk->nbhij", k, k) * D, -1)
    T = invert(S)
    factors = Factors(
        w=einsum("nbhij,nbhjk->nbhik", T, (beta * jnp.exp(G))[..., None] * k),
        u=einsum("nbhij,nbhjv->nbhiv", T, beta[..., None] * v),
        q_decayed=jnp.exp(G)[..., None] * q,
        k_decayed=D[..., -1, :, None] * k,
        attention=einsum("nbhik,nbhjk->nbhij", q, k) * D,
        decay=jnp.exp(G[..., -1]),
    )
    return S, T, factors


def segment_sums(g: Float[Array, "... C"]) -> Float[Array, "... C C"]:
    """`G_i - G_j`, the sum of g over j < t <= i, and -inf for i < j (mask before exp, or it overflows).

    Summed, not subtracted: a difference of cumulative sums costs `u max|G|`, and in its gradient the terms of every
    pair inside the chunk cancel, which leaves little of dg where the decay is strong.
    """
    chunk_size = g.shape[-1]
    after = jnp.tril(jnp.ones((chunk_size, chunk_size), dtype=bool), -1)
    sums = jnp.cumsum(jnp.where(after, g[..., :, None], 0), axis=-2)
    return jnp.where(jnp.tril(jnp.ones_like(after)), sums, -jnp.inf)


def _within_documents(
    G: Float[Array, "N B H C"], between: Float[Array, "N B H C C"], first: Bool[Array, "N B 1 C"]
) -> tuple[Float[Array, "N B H C"], Float[Array, "N B H C C"]]:
    """The same sums of log decays, and -inf, the log of no connection, over the start of a document.

    Every factor is made of their exponentials, which are then exactly 0, as are the gradients of what is masked: T
    falls into blocks, what follows a start reads nothing of the entering state, and that leaves nothing behind.
    """
    document = numbered(first)
    same = document[..., :, None] == document[..., None, :]
    return jnp.where(document == 0, G, -jnp.inf), jnp.where(same, between, -jnp.inf)


def chunk_step(h: State, chunk: Factors) -> tuple[State, Float[Array, "B H C V"]]:
    """One chunk: the next state, and the reads inside the chunk."""
    written = chunk.u - einsum("bhck,bhkv->bhcv", chunk.w, h)
    o = einsum("bhck,bhkv->bhcv", chunk.q_decayed, h) + einsum("bhij,bhjv->bhiv", chunk.attention, written)
    return chunk.decay[..., None, None] * h + einsum("bhck,bhcv->bhkv", chunk.k_decayed, written), o


def scan(h: State, chunks: Factors) -> tuple[State, Float[Array, "N B H C V"]]:
    """A `Walk`: `jax.lax.scan` of `chunk_step`."""
    return jax.lax.scan(chunk_step, h, chunks)


def join(o: Float[Array, "N B H C V"], tokens: int) -> Float[Array, "B T H V"]:
    """The outputs of the chunks as one sequence, the padding of a ragged tail cut off."""
    chunks, batch, heads, chunk_size, size = o.shape
    return o.transpose(1, 0, 3, 2, 4).reshape(batch, chunks * chunk_size, heads, size)[:, :tokens]


def chunked(
    q: Float[Array, "B T Hk K"],
    k: Float[Array, "B T Hk K"],
    v: Float[Array, "B T Hv V"],
    g: Float[Array, "B T Hv"],
    beta: Float[Array, "B T Hv"],
    initial_state: Float[Array, "B Hv K V"],
    *,
    scale: float | None = None,
    chunk_size: int = 64,
    segment_ids: Int[Array, "B T"] | None = None,
    invert: Invert = substitution,
    walk: Walk = scan,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    """`(o, final_state)` under the contract. `invert` is the UT transform, `walk` the recurrence over chunks.

    Raises ValueError on shapes that do not fit together.
    """
    check_inputs(q, k, v, g, beta, initial_state, chunk_size=chunk_size, segment_ids=segment_ids)
    first = starts(segment_ids)
    factors = prepare(q, k, v, g, beta, scale=scale, chunk_size=chunk_size, invert=invert, first=first)
    final_state, o = walk(initial_state.astype(factors.u.dtype), factors)
    return join(o, v.shape[1]).astype(v.dtype), final_state.astype(initial_state.dtype)


def stages(
    q: Float[Array, "B T Hk K"],
    k: Float[Array, "B T Hk K"],
    v: Float[Array, "B T Hv V"],
    g: Float[Array, "B T Hv"],
    beta: Float[Array, "B T Hv"],
    initial_state: Float[Array, "B Hv K V"],
    *,
    scale: float | None = None,
    chunk_size: int = 64,
    segment_ids: Int[Array, "B T"] | None = None,
    invert: Invert = substitution,
) -> dict[str, Array]:
    """What `chunked` computes on the way, as `contract.STAGES` has it: S, T, w, u and `entering_chunk`.

    Raises ValueError on shapes that do not fit together.
    """
    check_inputs(q, k, v, g, beta, initial_state, chunk_size=chunk_size, segment_ids=segment_ids)
    first = starts(segment_ids)
    S, T, factors = prepare_in_stages(q, k, v, g, beta, scale=scale, chunk_size=chunk_size, invert=invert, first=first)
    entering = entering_states(initial_state.astype(factors.u.dtype), factors)
    found = {"S": S, "T": T, "w": factors.w, "u": factors.u, "entering_chunk": entering}
    return {name: x[None] for name, x in found.items()}


def entering_states(h: State, chunks: Factors) -> Float[Array, "N B H K V"]:
    """The state that enters each chunk, the first of which `h` enters."""
    return jax.lax.scan(lambda h, chunk: (chunk_step(h, chunk)[0], h), h, chunks)[1]


def _split(x: Shaped[Array, "B T H *size"], chunk_size: int) -> Shaped[Array, "N B H C *size"]:
    """Pad T with zeros to whole chunks, and bring the chunks to the front."""
    batch, tokens, heads, *size = x.shape
    chunks = -(-tokens // chunk_size)
    x = jnp.pad(x, ((0, 0), (0, chunks * chunk_size - tokens), *((0, 0) for _ in x.shape[2:])))
    return jnp.moveaxis(x.reshape(batch, chunks, chunk_size, heads, *size), (1, 3), (0, 2))


CHUNKED = Implementation("chunked", chunked, packed=True, stages=stages)
