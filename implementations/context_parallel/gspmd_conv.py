"""The causal convolution as global code: the compiler's SPMD partitioner finds the halo and exchanges it (thread 3).

It does so for a convolution whose padding is W - 1 zeros in front. Joining `initial_state` to the tokens instead makes
it gather the sequence, for T + W - 1 tokens are not the ranks' own; so does a slice of the first or last tokens, where
an index for each token does not. docs/context_parallel.md has the figures.
"""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from implementations.causal_conv import causal_conv, sums_in, taps
from implementations.context_parallel.halo_conv import check_call
from implementations.context_parallel.ranks import Axes, are_manual


def gspmd_conv(
    x: Float[Array, "B T D"],
    weight: Float[Array, "D W"],
    initial_state: Float[Array, "B W-1 D"],
    *,
    mesh: Mesh,
    axes: Axes,
) -> tuple[Float[Array, "B T D"], Float[Array, "B W-1 D"]]:
    """`(y, final_state)` as `causal_conv`, T sharded over `axes`; every rank returns the same final state.

    Axes of the mesh that are not named may shard B and D. Those of `axes` must be `AxisType.Auto`.
    Raises ValueError as `halo_conv.check_call`, and inside a `shard_map` over `axes`.
    """
    if are_manual(axes):
        raise ValueError(
            f"gspmd_conv leaves the halo to the compiler's partitioner, which has no say over axes that are manual "
            f"already: use halo_conv; got axes={axes}"
        )
    if len(check_call(x, weight, initial_state, mesh, axes)) == 1:
        return causal_conv(x, weight, initial_state)
    tokens, halo, accumulate = x.shape[1], weight.shape[1] - 1, sums_in(x, weight)

    def laid_out(y: Array, over: Axes | None) -> Array:
        free = PartitionSpec.UNCONSTRAINED
        return jax.lax.with_sharding_constraint(y, NamedSharding(mesh, PartitionSpec(free, over, free)))

    x = laid_out(x, axes)
    wide = weight.astype(accumulate)
    y = jax.lax.conv_general_dilated(
        x.astype(accumulate),
        wide.T[:, None],  # [W, 1, D]
        window_strides=(1,),
        padding=[(halo, 0)],
        dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=x.shape[2],
        precision=jax.lax.Precision.HIGHEST,
    )
    state = initial_state.astype(accumulate)
    from_state = taps(jnp.concatenate([state, jnp.zeros_like(state)], axis=1), wide)
    y = laid_out(y, axes).at[:, jnp.arange(halo)].add(from_state)
    final_state = x.at[:, jnp.arange(tokens - halo, tokens)].get()
    return laid_out(y, axes).astype(x.dtype), laid_out(final_state, None)
