"""The chunked form with our kernels in it: prepared by XLA, inverted by the ladder, walked with the state in VMEM.

Fused and context parallel at once: a rank's map is a walk of the kernel too, over `[v | 0]` from `[0 | I]`, and its
replay is another, over the same factors.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

from implementations.chunked import Factors, State, chunked
from implementations.chunked import stages as stages_of_one_device
from implementations.context_parallel.affine import Affine, fold
from implementations.context_parallel.any_kernel import context_parallel
from implementations.context_parallel.three_phase import augmented, nothing_and_identity
from implementations.context_parallel.two_phase import stages, two_phase
from implementations.contract import Implementation
from implementations.pallas.inversion import inversion
from implementations.pallas.scan import end_of_walk, walk
from implementations.ut_inversion.products import bf16x3, full

invert_f32, invert_bf16x3 = partial(inversion, product=full), partial(inversion, product=bf16x3)


def walked_map(chunks: Factors) -> Affine:
    """`(A, B)` of all chunks (leading axis), by a walk of the kernel in which nothing is read."""
    V = chunks.u.shape[-1]
    end = end_of_walk(nothing_and_identity(chunks), augmented(chunks))
    return end[..., V:], end[..., :V]


def walk_bf16(h: State, chunks: Factors) -> tuple[State, Array]:
    """A walk whose products take operands in bf16, nearly all in one pass of a matrix unit: the fast form, and coarse.

    `u`, `k_decayed` and `decay` stay wide. In their cotangents, and in the sums over the keys, what one token adds
    nearly cancels what its neighbour does where keys repeat: dbeta is what is left, and less than their rounding. `w`
    does too: `u - w h` nearly cancels where memory is long, and dg is made of what is left.
    """
    narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), chunks)
    return walk(h, narrow._replace(w=chunks.w, u=chunks.u, k_decayed=chunks.k_decayed, decay=chunks.decay))


PALLAS = Implementation(
    "pallas",
    partial(chunked, invert=invert_f32, walk=walk),
    packed=True,
    stages=partial(stages_of_one_device, invert=invert_f32),
)
PALLAS_BF16 = Implementation(
    "pallas_bf16", partial(chunked, invert=invert_bf16x3, walk=walk_bf16), packed=True, arithmetic={"bf16": "bf16"}
)
PALLAS_FOLD, PALLAS_LOCAL_PASS = (
    Implementation(
        name,
        partial(two_phase, map_of_rank=map_of_rank, invert=invert_f32, walk=walk),
        context_parallel=True,
        packed=True,
        stages=partial(stages, map_of_rank=map_of_rank, invert=invert_f32),
    )
    for name, map_of_rank in (("pallas_fold", fold), ("pallas_local_pass", walked_map))
)
PALLAS_OVER_RANKS = context_parallel(PALLAS)
