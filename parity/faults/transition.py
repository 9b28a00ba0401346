"""Faults of the affine map `h' = A h + B` that a rank makes of its tokens, and of how maps are composed."""

from functools import partial

from parity.faults.edits import Edit
from parity.faults.fault import Fault

_affine = partial(Edit, "implementations.context_parallel.affine")
_exchange = partial(Edit, "implementations.context_parallel.exchange")
_two_phase = partial(Edit, "implementations.context_parallel.two_phase")

_GATHER = "pairs = gather(pair, axes)"
_DECAY = "A = chunk.decay[..., None, None] * identity - einsum("
_COMPOSED_A = 'einsum("...ij,...jk->...ik", A2, A1)'
_COMPOSED_B = 'einsum("...ij,...jv->...iv", A2, B1) + B2'


def _wrong(name: str, cause: str, edit: Edit, *regimes: str, first_bad_rank: int = 1) -> Fault:
    """What leaves the first rank is wrong, so that it is right in `o` and no other is."""
    where = regimes or ("long_memory", "correlated_keys")
    return Fault(name, cause, "hand_over", "o", where, (edit,), ranks=4, first_bad_rank=first_bad_rank)


FAULTS = (
    _wrong(
        "transition_transposed",
        "the ranks' transitions A are transposed",
        _exchange(_GATHER, "pairs = jax.lax.all_gather((jnp.swapaxes(pair[0], -1, -2), pair[1]), axes)"),
        "correlated_keys",
        "beta_near_two",
    ),
    _wrong(
        "transition_zero",
        "a chunk's transition is taken as zero in the fold: a rank's map knows its last chunk alone",
        _affine("    return A, einsum(", "    return 0 * A, einsum("),
    ),
    _wrong(
        "transition_sign",
        "the sign of K~^T w in a chunk's transition is flipped",
        _affine("* identity - einsum(", "* identity + einsum("),
    ),
    _wrong(
        "transition_without_decay",
        "gamma is missing in a chunk's transition: I - K~^T w",
        _affine(_DECAY, "A = identity - einsum("),
        "long_memory",
        "typical",
    ),
    _wrong(
        "transition_decayed_whole",
        "gamma stands around all of a chunk's transition: gamma (I - K~^T w)",
        _affine(
            'einsum("...ck,...cj->...kj", chunk.k_decayed, chunk.w)',
            'chunk.decay[..., None, None] * einsum("...ck,...cj->...kj", chunk.k_decayed, chunk.w)',
        ),
        "long_memory",
        "typical",
    ),
    _wrong(
        "transition_without_delta",
        "a chunk's transition is its decay alone, without K~^T w",
        _affine(_DECAY, "A = chunk.decay[..., None, None] * identity - 0 * einsum("),
    ),
    _wrong(
        "transitions_in_reverse_order",
        "transitions are multiplied in the wrong order: A1 A2 instead of A2 A1",
        _affine(_COMPOSED_A, 'einsum("...ij,...jk->...ik", A1, A2)'),
        "correlated_keys",
        "beta_near_two",
    ),
    _wrong(
        "pairs_in_reverse_order",
        "maps are composed in the wrong order: (A1 A2, A1 B2 + B1)",
        _affine("compose(of_chunk(chunk), earlier)", "compose(earlier, of_chunk(chunk))"),
    ),
    _wrong(
        "writes_not_carried",
        "composed maps add B1 + B2, without A2 B1",
        _affine(_COMPOSED_B, "B1 + B2"),
    ),
    _wrong(
        "earlier_writes_lost",
        "composed maps forget the earlier B: B2 without A2 B1",
        _affine(_COMPOSED_B, "B2"),
    ),
    _wrong(
        "last_chunk_not_folded",
        "the last chunk of each rank is missing in what it hands over",
        _affine(
            "jax.lax.scan(body, no_chunk(chunks), chunks)",
            "jax.lax.scan(body, no_chunk(chunks), jax.tree.map(lambda x: x[:-1], chunks))",
        ),
        "long_memory",
        "typical",
    ),
    _wrong(
        "last_token_not_folded",
        "a halo off by one: the last token of each rank is missing in what it hands over",
        _two_phase(
            "exchange(map_of_rank(factors), initial_state, axes)",
            "exchange(map_of_rank(prepare(*(x.at[:, -1].set(0.0) for x in (q, k, v, g, beta)), scale=scale, "
            "chunk_size=chunk_size)), initial_state, axes)",
        ),
        "long_memory",
        "typical",
    ),
)
