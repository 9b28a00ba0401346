"""What a scheme knows of its ranks: which axes of the mesh number them, what each holds, and who sends to whom.

Ranks are numbered over a tuple of mesh axes, the first one major, whatever the order of the axes in the mesh.

A scheme makes these axes manual by a `shard_map` of its own, and jax makes no axis manual twice. So where its caller
has made them manual already, it is given what one rank holds, and does what one rank does.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from implementations.arithmetic import accumulation_dtype
from implementations.contract import check_inputs
from implementations.segments import changes

Axes = tuple[str, ...]


def check_call(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    g: jax.Array,
    beta: jax.Array,
    initial_state: jax.Array,
    *,
    chunk_size: int,
    mesh: Mesh,
    axes: Axes,
    segment_ids: jax.Array | None = None,
) -> None:
    """Raise ValueError unless the inputs fit together, can be split over the ranks, and lie in their order."""
    check_inputs(q, k, v, g, beta, initial_state, chunk_size=chunk_size, segment_ids=segment_ids)
    check_ranks(v.shape[1], mesh, axes)
    if are_manual(axes) and any(jax.typeof(x).manual_axis_type.varying for x in (q, k, v, g, beta, initial_state)):
        raise ValueError(
            "the shard_map around must have check_vma=False: no type says that all ranks compute the same final state"
        )
    check_layout(axes, q=q, k=k, v=v, g=g, beta=beta, segment_ids=segment_ids)


def check_ranks(tokens: int, mesh: Mesh, axes: Axes) -> None:
    """Raise ValueError unless `axes` are distinct axes of `mesh`, all of them manual already or none, and their sizes
    multiply to a divisor of `tokens`, where these are not those of one rank.
    """
    if not isinstance(mesh, Mesh | AbstractMesh):
        raise ValueError(f"mesh must be a jax.sharding.Mesh, some of whose axes number the ranks; got {mesh!r}")
    known = isinstance(axes, tuple) and all(axis in mesh.axis_names for axis in axes)
    if not known or not axes or len(set(axes)) != len(axes):
        raise ValueError(f"axes must be a tuple of distinct axes of the mesh, {mesh.axis_names}; got {axes!r}")
    ranks = count(mesh, axes)
    if are_manual(axes):
        around = jax.sharding.get_abstract_mesh().shape
        if any(around[axis] != mesh.shape[axis] for axis in axes):
            raise ValueError(f"the mesh has {dict(mesh.shape)}, and that of the shard_map around {dict(around)}")
    elif tokens % ranks:
        raise ValueError(
            f"T must be a multiple of the number of ranks, each holds T / R tokens; got T = {tokens}, R = {ranks}: use "
            f"another number of ranks, or pad the sequence behind its tokens (to the rule g = k = v = q = 0 is nothing)"
        )


def count(mesh: Mesh, axes: Axes) -> int:
    """How many ranks the axes number."""
    return math.prod(mesh.shape[axis] for axis in axes)


def held(tokens: int, mesh: Mesh, axes: Axes) -> int:
    """How many tokens a rank has where a scheme is given `tokens`."""
    return tokens if are_manual(axes) else tokens // count(mesh, axes)


def are_manual(axes: Axes) -> bool:
    """Whether a `shard_map` around has made all of `axes` manual. Raises ValueError where it has some of them."""
    manual = set(jax.sharding.get_abstract_mesh().manual_axes) & set(axes)
    if manual and manual != set(axes):
        raise ValueError(
            f"the ranks are numbered over {axes}, and the shard_map around has made {sorted(manual)} of them manual: "
            f"name all of them there, or none"
        )
    return bool(manual)


def check_layout(axes: Axes, **sequences: Any) -> None:
    """Raise ValueError where the T axis of one of `sequences` is laid out over the axes of `axes` in another order.

    Each rank would hold the tokens of another one. Where jax can move them it does, at the cost of all tokens; where a
    kernel is called inside a `shard_map` of its caller's nothing moves, and the result is wrong. What is traced over
    automatic axes has no layout yet, and is laid out as it should be.
    """
    for name, x in sequences.items():
        sharding = jax.typeof(x).sharding if isinstance(x, jax.core.Tracer) else getattr(x, "sharding", None)
        if not isinstance(sharding, NamedSharding):
            continue
        over = tuple(sharding.spec)[1] if len(sharding.spec) > 1 else None
        if not isinstance(over, tuple) or set(over) != set(axes):
            continue
        longer = {axis for axis in axes if sharding.mesh.shape[axis] > 1}  # an axis of one orders nothing
        if [axis for axis in over if axis in longer] != [axis for axis in axes if axis in longer]:
            raise ValueError(
                f"the tokens of {name} are laid out over {over}, and the ranks are numbered over {axes}: each rank "
                f"would hold the tokens of another; use one order, the first axis major"
            )


def over_ranks(local: Callable[..., Any], mesh: Mesh, axes: Axes) -> Callable[..., Any]:
    """`local` on each rank, with its own tokens of q, k, v, g and beta, the whole initial state in the dtype that sums
    are kept in, and the `segment_ids` of its tokens, or None. It returns the outputs of its tokens, and the final state
    in that dtype.
    """
    of_tokens, of_the_state = PartitionSpec(None, axes), PartitionSpec()
    on_each = on_each_rank(local, mesh, axes, (of_tokens, of_the_state))

    def call(*inputs: Any) -> tuple[jax.Array, jax.Array]:
        o, final_state = on_each(*inputs)
        return o, final_state.astype(inputs[5].dtype)

    return call


def on_each_rank(local: Callable[..., Any], mesh: Mesh, axes: Axes, out_specs: Any) -> Callable[..., Any]:
    """The same for what returns anything, sharded as `out_specs` say.

    States cross the border in the wide dtype, for there the gradients of all ranks are summed.
    """
    tokens, state = PartitionSpec(None, axes), PartitionSpec()
    program = manual(local, mesh, axes, (tokens, tokens, tokens, tokens, tokens, state, tokens), out_specs)

    def call(q: Any, k: Any, v: Any, g: Any, beta: Any, initial_state: Any, segment_ids: Any) -> Any:
        return program(q, k, v, g, beta, initial_state.astype(accumulation_dtype(v.dtype)), segment_ids)

    return call


def starts_on_rank(segment_ids: jax.Array | None, axes: Axes) -> jax.Array | None:
    """Which tokens of this rank are the first of a further document: the id before its own comes from the rank before.

    Called inside a `shard_map` over `axes`.
    """
    if segment_ids is None:
        return None
    hops = [(rank, rank + 1) for rank in range(jax.lax.axis_size(axes) - 1)]
    sent = permute(segment_ids[:, -1:], axes, hops)
    return changes(segment_ids, jnp.where(jax.lax.axis_index(axes) == 0, segment_ids[:, :1], sent))


def manual(
    local: Callable[..., Any], mesh: Mesh, axes: Axes, in_specs: tuple[PartitionSpec, ...], out_specs: Any
) -> Callable[..., Any]:
    """`local` on each rank, its arguments and results sharded over `axes` as the specs say; `local` itself where the
    axes are manual already.

    Other axes of the mesh, over which rows or heads may be sharded, stay with the compiler.
    """
    if are_manual(axes):
        return local
    # jit, for without it jax 0.10 runs no shard_map over some axes of a mesh only.
    return jax.jit(
        jax.shard_map(
            local,
            mesh=mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            axis_names=set(axes),
            check_vma=False,  # a state is the same on all ranks because all compute it from what all have received
        )
    )


def gather(x: Any, axes: Axes) -> Any:
    """`[R, ...]` of each array of the tree `x`, from all ranks, on each. Called inside a `shard_map` over `axes`.

    Where the mesh has axes beside, by one permutation for each distance between ranks: XLA leaves rows and heads
    sharded in a permutation, and gathers them too where it finds a gather over some axes only.
    """
    ranks = jax.lax.axis_size(axes)
    if set(jax.sharding.get_abstract_mesh().axis_names) == set(axes):
        return jax.lax.all_gather(x, axes)
    from_distance = [x] + [
        permute(x, axes, [(r, (r + distance) % ranks) for r in range(ranks)]) for distance in range(1, ranks)
    ]
    distance_of_rank = (jax.lax.axis_index(axes) - jnp.arange(ranks)) % ranks
    return jax.tree.map(lambda *copies: jnp.stack(copies)[distance_of_rank], *from_distance)


def permute(x: Any, axes: Axes, hops: Sequence[tuple[int, int]]) -> Any:
    """Each hop's source sends `x`, a tree of arrays, to its destination; who is sent nothing gets zeros.

    Called inside a `shard_map` over `axes`. `jax.lax.ppermute` numbers ranks in the mesh's order of the axes: where
    `axes` has another, jax 0.10 sends to other ranks in silence, and jax 0.12 refuses.
    """
    in_mesh = tuple(axis for axis in jax.sharding.get_abstract_mesh().axis_names if axis in axes)

    def number(rank: int) -> int:
        index = dict(zip(axes, np.unravel_index(rank, [jax.lax.axis_size(axis) for axis in axes]), strict=True))
        sizes = [jax.lax.axis_size(axis) for axis in in_mesh]
        return int(np.ravel_multi_index([index[axis] for axis in in_mesh], sizes))

    return jax.lax.ppermute(x, in_mesh, [(number(source), number(destination)) for source, destination in hops])
