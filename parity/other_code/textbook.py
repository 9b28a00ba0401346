"""The chunked form as published kernels have it, on one device and over ranks.

It shares nothing with `implementations` but the contract: `D_ij = exp(G_i - G_j)` is a difference of cumulative sums,
the UT transform a general inverse, the layout `[B, H, N, C, ...]`, and a rank learns its transition from the rule
itself: values `[v | 0]` with the initial state `[0 | I]` end in `[B | A]`.

Its dg is what remains of terms that cancel: without `oracles.conditioning.decay_gradient_terms` it would be red by
5e4 limits where the decay is strong.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from implementations.contract import Implementation, check_inputs

Product = Callable[[Array, Array], Array]
Ids = Int[Array, "B T"]

_matmul = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


def textbook(
    q: Float[Array, "B T Hk K"],
    k: Float[Array, "B T Hk K"],
    v: Float[Array, "B T Hv V"],
    g: Float[Array, "B T Hv"],
    beta: Float[Array, "B T Hv"],
    initial_state: Float[Array, "B Hv K V"],
    *,
    scale: float | None,
    chunk_size: int,
    segment_ids: Ids | None = None,
    id_before: Int[Array, " B"] | None = None,
    product: Product = _matmul,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    """`(o, final_state)` under the contract. `product` multiplies matrices; the initial state is of the document
    `id_before`, and of that of token 0 where there is none.

    Raises ValueError on shapes that do not fit together.
    """
    check_inputs(q, k, v, g, beta, initial_state, chunk_size=chunk_size, segment_ids=segment_ids)
    group = v.shape[2] // k.shape[2]
    wide = jnp.promote_types(v.dtype, jnp.float32)
    scale = k.shape[-1] ** -0.5 if scale is None else scale

    # Columns [B, H, N, C, size], of size 1 where a token has one number.
    Q = _chunks(jnp.repeat(q.astype(wide), group, axis=2), chunk_size) * scale
    K = _chunks(jnp.repeat(k.astype(wide), group, axis=2), chunk_size)
    V = _chunks(v.astype(wide), chunk_size)
    G = jnp.cumsum(_chunks(g.astype(wide)[..., None], chunk_size), axis=-2)
    b = _chunks(beta.astype(wide)[..., None], chunk_size)
    G_end = G[..., -1:, :]

    causal = jnp.tril(jnp.ones((chunk_size, chunk_size), dtype=bool))
    if segment_ids is not None:
        document, document_before = _documents(segment_ids, id_before, chunk_size)
        causal = causal & (document == document.mT)
    D = jnp.exp(jnp.where(causal, G - G.mT, -jnp.inf))
    S = jnp.tril(b * product(K, K.mT) * D, -1)
    T = jnp.linalg.inv(jnp.eye(chunk_size, dtype=wide) + S)
    u = product(T, b * V)
    w = product(T, b * jnp.exp(G) * K)
    Q_from_start = jnp.exp(G) * Q
    K_to_end = jnp.exp(G_end - G) * K
    attention = product(Q, K.mT) * D
    if segment_ids is not None:
        of_entering, of_leaving = document == document_before, document == document[..., -1:, :]
        w, Q_from_start, K_to_end = of_entering * w, of_entering * Q_from_start, of_leaving * K_to_end
        G_end = jnp.where(of_entering[..., -1:, :], G_end, -jnp.inf)

    def chunk(h: Array, factors: tuple[Array, ...]) -> tuple[Array, Array]:
        Q_from_start, K_to_end, attention, u, w, G_end = factors
        new = u - product(w, h)
        o = product(Q_from_start, h) + product(attention, new)
        h = jnp.exp(G_end) * h + product(K_to_end.mT, new)
        return h, o

    factors = tuple(jnp.moveaxis(x, 2, 0) for x in (Q_from_start, K_to_end, attention, u, w, G_end))
    h, o = jax.lax.scan(chunk, initial_state.astype(wide), factors)
    return _tokens(o, v.shape[1]).astype(v.dtype), h.astype(initial_state.dtype)


def _documents(ids: Ids, id_before: Int[Array, " B"] | None, chunk_size: int) -> tuple[Array, Array]:
    """The number of each token's document `[B, 1, N, C, 1]`, counted over the whole row from that of the initial state,
    and of the state that enters each chunk `[B, 1, N, 1, 1]`.
    """
    before = ids[:, 0] if id_before is None else id_before
    number = jnp.cumsum(jnp.diff(ids, axis=1, prepend=before[:, None]) != 0, axis=1)
    number = jnp.pad(number, ((0, 0), (0, -ids.shape[1] % chunk_size)), mode="edge")
    document = number.reshape(len(ids), 1, -1, chunk_size, 1)
    last = document[..., -1:, :]
    return document, jnp.concatenate([jnp.zeros_like(last[:, :, :1]), last[:, :, :-1]], axis=2)


def _chunks(x: Float[Array, "B T H size"], chunk_size: int) -> Float[Array, "B H N C size"]:
    """T in chunks, the last of them filled with zeros: tokens that do nothing."""
    batch, tokens, heads, size = x.shape
    missing = -tokens % chunk_size
    x = jnp.pad(x, ((0, 0), (0, missing), (0, 0), (0, 0)))
    return jnp.swapaxes(x, 1, 2).reshape(batch, heads, -1, chunk_size, size)


def _tokens(x: Float[Array, "N B H C size"], tokens: int) -> Float[Array, "B T H size"]:
    """Chunks of outputs in a row again, without what filled the last of them."""
    chunks, batch, heads, chunk_size, size = x.shape
    return jnp.transpose(x, (1, 0, 3, 2, 4)).reshape(batch, chunks * chunk_size, heads, size)[:, :tokens]


def textbook_over_ranks(
    q: Float[Array, "B T Hk K"],
    k: Float[Array, "B T Hk K"],
    v: Float[Array, "B T Hv V"],
    g: Float[Array, "B T Hv"],
    beta: Float[Array, "B T Hv"],
    initial_state: Float[Array, "B Hv K V"],
    *,
    scale: float | None,
    chunk_size: int,
    mesh: Mesh,
    axes: tuple[str, ...],
    segment_ids: Ids | None = None,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    """`(o, final_state)` under the contract, T in contiguous pieces over `axes`.

    Each rank runs twice: from `[0 | I]`, which gives its own map, and from the state that the ranks before it leave.
    Raises ValueError on shapes that do not fit together.
    """
    check_inputs(q, k, v, g, beta, initial_state, chunk_size=chunk_size, segment_ids=segment_ids)
    ranks = math.prod(mesh.shape[axis] for axis in axes)

    def on_each_rank(
        q: Array, k: Array, v: Array, g: Array, beta: Array, h0: Array, ids: Ids | None
    ) -> tuple[Array, Array]:
        rank, id_before = jax.lax.axis_index(axes), None
        if ids is not None:
            last_of = jax.lax.all_gather(ids[:, -1], axes)
            id_before = jnp.where(rank == 0, ids[:, 0], last_of[rank - 1])
        rule = partial(textbook, scale=scale, chunk_size=chunk_size, segment_ids=ids, id_before=id_before)
        values = jnp.concatenate([v, jnp.zeros((*v.shape[:-1], k.shape[-1]), v.dtype)], axis=-1)
        identity = jnp.broadcast_to(jnp.eye(k.shape[-1], dtype=h0.dtype), (*h0.shape[:-1], k.shape[-1]))
        _, end = rule(q, k, values, g, beta, jnp.concatenate([jnp.zeros_like(h0), identity], axis=-1))
        B, A = jnp.split(end, [v.shape[-1]], axis=-1)
        A_of, B_of = jax.lax.all_gather((A, B), axes)

        entering, state = jnp.zeros_like(h0), h0
        for other in range(ranks):
            entering = jnp.where(rank == other, state, entering)
            state = _matmul(A_of[other], state) + B_of[other]

        o, _ = rule(q, k, v, g, beta, entering)
        return o, state

    pieces, whole = PartitionSpec(None, axes), PartitionSpec()
    over_ranks = jax.shard_map(
        on_each_rank,
        mesh=mesh,
        in_specs=(pieces, pieces, pieces, pieces, pieces, whole, pieces),
        out_specs=(pieces, whole),
        check_vma=False,  # every rank computes the final state from the same pairs
    )
    return over_ranks(q, k, v, g, beta, initial_state, segment_ids)


TEXTBOOK = Implementation("textbook", textbook, packed=True)
TEXTBOOK_OVER_RANKS = Implementation("textbook_over_ranks", textbook_over_ranks, context_parallel=True, packed=True)
