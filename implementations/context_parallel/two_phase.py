"""Two-phase context parallelism (thread 2): fold, exchange, replay.

Each rank folds its chunks into one affine map, the ranks exchange maps, and each replays its chunks from the
state that enters it. The exchange does not grow with the sequence.
"""

import math
from collections.abc import Callable

import jax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from implementations.chunked import chunk_step, join, prepare
from implementations.context_parallel.affine import Affine, fold
from implementations.context_parallel.exchange import all_gather_prefix
from implementations.contract import Implementation, check_inputs

Exchange = Callable[[Affine, Array, tuple[str, ...]], tuple[Array, Array]]


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
    exchange: Exchange = all_gather_prefix,
) -> tuple[Float[Array, "B T Hv V"], Float[Array, "B Hv K V"]]:
    """`(o, final_state)` under the contract, T sharded over `axes`; every rank returns the same final state.

    `exchange(pair, initial_state, axes)` returns the state entering this rank and the final state.
    Raises ValueError on shapes that do not fit together, on axes that the mesh lacks, and on a T that is not a
    multiple of the number of ranks.
    """
    check_inputs(q, k, v, g, beta, initial_state, chunk_size=chunk_size)
    check_ranks(v.shape[1], mesh, axes)

    def local(q: Array, k: Array, v: Array, g: Array, beta: Array, initial_state: Array) -> tuple[Array, Array]:
        factors = prepare(q, k, v, g, beta, scale=scale, chunk_size=chunk_size)
        h0 = initial_state.astype(factors.u.dtype)
        entering, final_state = exchange(fold(factors), h0, axes)
        _, o = jax.lax.scan(chunk_step, entering, factors)
        return join(o, v.shape[1]).astype(v.dtype), final_state.astype(initial_state.dtype)

    tokens, state = PartitionSpec(None, axes), PartitionSpec()
    sharded = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(tokens, tokens, tokens, tokens, tokens, state),
        out_specs=(tokens, state),
        check_vma=False,  # the final state is the same on all ranks because all compute it from the same gathered pairs
    )
    return sharded(q, k, v, g, beta, initial_state)


def check_ranks(tokens: int, mesh: Mesh, axes: tuple[str, ...]) -> None:
    """Raise ValueError unless `axes` are distinct axes of `mesh` whose sizes multiply to a divisor of `tokens`."""
    if not isinstance(axes, tuple) or not axes or len(set(axes)) != len(axes) or not set(axes) <= set(mesh.axis_names):
        raise ValueError(f"axes must be a tuple of distinct axes of the mesh, {mesh.axis_names}; got {axes!r}")
    ranks = math.prod(mesh.shape[axis] for axis in axes)
    if tokens % ranks:
        raise ValueError(
            f"T must be a multiple of the number of ranks, each holds T / R tokens; got T = {tokens}, R = {ranks}"
        )


TWO_PHASE = Implementation("two_phase", two_phase, context_parallel=True)
