"""Faults in gradients alone, made inside our code: a branch of the backward that is missing or wrong."""

from functools import partial

from parity.faults.chunk import ATTENTION, D_FROM_G, INVERSE, K_DECAYED, WRITTEN, D, G, S, U, W
from parity.faults.edits import Edit
from parity.faults.fault import Fault

_chunked = partial(Edit, "implementations.chunked")
_inversion = partial(Edit, "implementations.ut_inversion.substitution")
_exchange = partial(Edit, "implementations.context_parallel.exchange")

WEAK = ("long_memory", "typical")


def _wrong(name: str, cause: str, quantity: str, *edits: Edit, right: tuple[str, ...] = (), **rest: object) -> Fault:
    return Fault(name, cause, "backward", quantity, WEAK, edits, right=("o", "final_state", *right), **rest)  # type: ignore[arg-type]


def _stopped(text: str, part: str) -> Edit:
    """No gradient flows through `part` of a line."""
    assert part in text
    return _chunked(text, text.replace(part, f"jax.lax.stop_gradient({part})"))


def inverse_with_adjoint(adjoint: str) -> str:
    """T with an adjoint by hand, of T and dT; the right one is `-(T^T dT T^T)`, strictly lower."""
    return (
        f"solve = lambda S: {INVERSE.removeprefix('return ')}\n"
        "    inverse = jax.custom_vjp(solve)\n"
        "    t = lambda x: jnp.swapaxes(x, -1, -2)\n"
        f"    inverse.defvjp(lambda S: (solve(S),) * 2, lambda T, dT: ({adjoint},))\n"
        "    return inverse(S)"
    )


RIGHT_ADJOINT = "-jnp.tril(t(T) @ dT @ t(T), -1)"
UNMASKED_ADJOINT = "-(t(T) @ dT @ t(T))"
# Above the diagonal D is 0, which would be a mask too.
S_UNMASKED = (
    S.replace("jnp.tril(", "(")
    .replace(", -1)", ")")
    .replace("* D", "* jnp.exp(jnp.minimum(G[..., :, None] - G[..., None, :], 0.0))")
)

INSIDE_A_CHUNK = (
    _wrong(
        "inverse_adjoint_not_transposed",
        "dS = -T dT T: the transposes are missing",
        "dk",
        _inversion(INVERSE, inverse_with_adjoint("-(T @ dT @ T)")),
        right=("dq", "dv", "dh0"),
    ),
    _wrong(
        "inverse_adjoint_not_masked",
        "dS is not masked strictly lower",
        "dk",
        _chunked(S, S_UNMASKED),
        _inversion(INVERSE, inverse_with_adjoint(UNMASKED_ADJOINT)),
        right=("dv", "dh0"),
    ),
    _wrong(
        "delta_term_not_differentiated",
        "the backward is that of a rule without the delta term",
        "dk",
        _stopped(WRITTEN, 'einsum("bhck,bhkv->bhcv", chunk.w, h)'),
    ),
    _wrong(
        "gradients_end_at_chunk_starts",
        "no gradient flows from a chunk to the one before it",
        "dv",
        _chunked(WRITTEN, f"h = jax.lax.stop_gradient(h)\n    {WRITTEN}"),
    ),
    _wrong(
        "dk_without_attention",
        "dk lacks the branch of Q K^T",
        "dk",
        _chunked(ATTENTION, ATTENTION.replace("q, k)", "q, jax.lax.stop_gradient(k))")),
        right=("dq", "dv", "dg", "dbeta", "dh0"),
    ),
    _wrong(
        "dk_without_w",
        "dk lacks the branch of w",
        "dk",
        _chunked(W, W.replace("[..., None] * k", "[..., None] * jax.lax.stop_gradient(k)")),
        right=("dq", "dv", "dg", "dbeta", "dh0"),
    ),
    _wrong(
        "dbeta_without_w",
        "dbeta lacks the branch of w",
        "dbeta",
        _stopped(W, "beta"),
        right=("dq", "dk", "dv", "dg", "dh0"),
    ),
    _wrong(
        "dbeta_without_u",
        "dbeta lacks the branch of u",
        "dbeta",
        _stopped(U, "beta"),
        right=("dq", "dk", "dv", "dg", "dh0"),
    ),
    _wrong(
        "dbeta_without_s",
        "dbeta lacks the branch of S",
        "dbeta",
        _stopped(S, "beta"),
        right=("dq", "dk", "dv", "dg", "dh0"),
    ),
    _wrong(
        "dg_without_reverse_sum",
        "dg is the gradient of the cumulative gate, without the reverse cumulative sum",
        "dg",
        _chunked(G, f"{G}\n    G = g + jax.lax.stop_gradient(G - g)"),
        _chunked(D, D_FROM_G),
        right=("dq", "dk", "dv", "dbeta", "dh0"),
    ),
    _wrong(
        "dg_without_attention",
        "dg lacks the branch of the decays in Q K^T",
        "dg",
        _chunked(ATTENTION, ATTENTION.replace("* D", "* jax.lax.stop_gradient(D)")),
        right=("dq", "dk", "dv", "dbeta", "dh0"),
    ),
    _wrong(
        "dg_without_chunk_decay",
        "dg lacks the branch of the state's decay over a chunk",
        "dg",
        _stopped("decay=jnp.exp(G[..., -1])", "jnp.exp(G[..., -1])"),
        right=("dq", "dk", "dv", "dbeta", "dh0"),
    ),
    _wrong(
        "dg_without_writes",
        "dg lacks the branch of the writes' decay to the end of the chunk",
        "dg",
        _stopped(K_DECAYED, "D"),
        right=("dq", "dk", "dv", "dbeta", "dh0"),
    ),
)

_GATHER = "pairs = gather(pair, axes)"

BETWEEN_RANKS = (
    _wrong(
        "transition_not_differentiated",
        "no gradient flows through the ranks' transitions",
        "dk",
        _exchange(_GATHER, "pairs = jax.lax.all_gather((jax.lax.stop_gradient(pair[0]), pair[1]), axes)"),
        ranks=4,
    ),
    _wrong(
        "entering_state_not_differentiated",
        "no gradient flows back through the state that enters a rank",
        "dv",
        _exchange("jnp.take(entering,", "jnp.take(jax.lax.stop_gradient(entering),"),
        ranks=4,
        last_bad_rank=2,
    ),
    _wrong(
        "one_rank_sends_no_gradient",
        "rank 3 sends no gradient back to the ranks before it",
        "dv",
        _exchange(
            "jnp.take(entering, jax.lax.axis_index(axes), axis=0)",
            "jnp.take(entering.at[3].set(jax.lax.stop_gradient(entering[3])), jax.lax.axis_index(axes), axis=0)",
        ),
        ranks=4,
        last_bad_rank=2,
    ),
)

FAULTS = (*INSIDE_A_CHUNK, *BETWEEN_RANKS)
