"""Two-phase context parallelism (thread 2): fold, exchange, replay.

Each rank folds its chunks into one affine map, the ranks exchange maps, and each replays its chunks from the
state that enters it. The exchange does not grow with the sequence.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from implementations.chunked import Factors, Invert, Walk, entering_states, join, prepare, prepare_in_stages, scan
from implementations.context_parallel.affine import Affine, fold
from implementations.context_parallel.exchange import Exchange, all_gather_prefix
from implementations.context_parallel.pieces import check_sequence_order
from implementations.context_parallel.ranks import check_call, on_each_rank, over_ranks, starts_on_rank
from implementations.contract import Implementation
from implementations.ut_inversion.substitution import substitution

MapOfRank = Callable[[Factors], Affine]


def two_phase(
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
    exchange: Exchange = all_gather_prefix,
    map_of_rank: MapOfRank = fold,
    invert: Invert = substitution,
    walk: Walk = scan,
    piece_order: Sequence[int] | None = None,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    """`(o, final_state)` under the contract, T sharded over `axes`; every rank returns the same final state.

    `exchange(pair, initial_state, axes)` returns the state entering this rank and the final state, `map_of_rank` the
    `(A, B)` of its factors; `invert` and `walk` are those of `chunked`.
    Raises ValueError on shapes that do not fit together, on axes that the mesh lacks, on a T that is not a multiple of
    the number of ranks, on tokens that are laid out over the same axes in another order, and on a `piece_order` that is
    not that of the sequence.
    """
    check_sequence_order(piece_order)
    inputs = (q, k, v, g, beta, initial_state)
    check_call(*inputs, chunk_size=chunk_size, mesh=mesh, axes=axes, segment_ids=segment_ids)

    enter_rank = partial(
        enter,
        scale=scale,
        chunk_size=chunk_size,
        invert=invert,
        axes=axes,
        exchange=exchange,
        map_of_rank=map_of_rank,
    )

    def local(*inputs: Any) -> tuple[Array, Array]:
        factors, entering, final_state = enter_rank(*inputs)
        _, o = walk(entering, factors)
        return join(o, inputs[2].shape[1]).astype(v.dtype), final_state

    return over_ranks(local, mesh, axes)(*inputs, segment_ids)


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
    mesh: Mesh,
    axes: tuple[str, ...],
    segment_ids: Int[Array, "B T"] | None = None,
    exchange: Exchange = all_gather_prefix,
    map_of_rank: MapOfRank = fold,
    invert: Invert = substitution,
) -> dict[str, Array]:
    """All of `contract.STAGES`, as `two_phase` computes them; the ranks' axis is sharded over `axes`.

    Raises ValueError as `two_phase` does.
    """
    inputs = (q, k, v, g, beta, initial_state)
    check_call(*inputs, chunk_size=chunk_size, mesh=mesh, axes=axes, segment_ids=segment_ids)
    enter_rank = partial(
        enter,
        scale=scale,
        chunk_size=chunk_size,
        invert=invert,
        axes=axes,
        exchange=exchange,
        map_of_rank=map_of_rank,
    )

    def local(*inputs: Any) -> dict[str, Array]:
        first = starts_on_rank(inputs[6], axes)
        S, T, _ = prepare_in_stages(*inputs[:5], scale=scale, chunk_size=chunk_size, invert=invert, first=first)
        factors, entering, _ = enter_rank(*inputs)
        A, B = map_of_rank(factors)
        found = {"S": S, "T": T, "w": factors.w, "u": factors.u, "A": A, "B": B, "entering_rank": entering}
        found["entering_chunk"] = entering_states(entering, factors)
        return {name: x[None] for name, x in found.items()}

    return on_each_rank(local, mesh, axes, PartitionSpec(axes))(*inputs, segment_ids)


def enter(
    q: Array,
    k: Array,
    v: Array,
    g: Array,
    beta: Array,
    initial_state: Array,
    segment_ids: Array | None,
    *,
    scale: float | None,
    chunk_size: int,
    invert: Invert,
    axes: tuple[str, ...],
    exchange: Exchange,
    map_of_rank: MapOfRank,
) -> tuple[Factors, Float[Array, "B Hv K V"], Float[Array, "B Hv K V"]]:
    """One rank's factors, the state that enters it, and the final state; called inside a `shard_map` over `axes`."""
    first = starts_on_rank(segment_ids, axes)
    factors = prepare(q, k, v, g, beta, scale=scale, chunk_size=chunk_size, invert=invert, first=first)
    return factors, *exchange(map_of_rank(factors), initial_state, axes)


TWO_PHASE = Implementation("two_phase", two_phase, context_parallel=True, packed=True, stages=stages)
