"""Faults inside a chunk: each is one line of `implementations.chunked`, or of how T is computed."""

from functools import partial

from parity.faults.edits import Edit
from parity.faults.fault import Fault
from parity.shapes import WIDE

_chunked = partial(Edit, "implementations.chunked")
_inversion = partial(Edit, "implementations.ut_inversion.substitution")

S = 'S = jnp.tril(beta[..., None] * einsum("nbhik,nbhjk->nbhij", k, k) * D, -1)'
D = "D = jnp.exp(between)"
# As published kernels have it, so that what is wrong in G is wrong everywhere.
D_FROM_G = (
    "D = jnp.exp(jnp.where(jnp.tril(jnp.ones(2 * G.shape[-1:], dtype=bool)), "
    "G[..., :, None] - G[..., None, :], -jnp.inf))"
)
G = "G = jnp.cumsum(g, axis=-1)"
T = "T = invert(S)"
W = 'w=einsum("nbhij,nbhjk->nbhik", T, (beta * jnp.exp(G))[..., None] * k)'
U = 'u=einsum("nbhij,nbhjv->nbhiv", T, beta[..., None] * v)'
Q_DECAYED = "q_decayed=jnp.exp(G)[..., None] * q"
K_DECAYED = "k_decayed=D[..., -1, :, None] * k"
ATTENTION = 'attention=einsum("nbhik,nbhjk->nbhij", q, k) * D'
WRITTEN = 'written = chunk.u - einsum("bhck,bhkv->bhcv", chunk.w, h)'
INVERSE = "return jax.lax.linalg.triangular_solve(S, identity, left_side=True, lower=True, unit_diagonal=True)"


def _wrong(name: str, cause: str, edit: Edit, *regimes: str, quantity: str = "o", **rest: object) -> Fault:
    where = regimes or ("long_memory", "typical")
    return Fault(name, cause, "chunk", quantity, where, (edit,), **rest)  # type: ignore[arg-type]


MATRICES = (
    _wrong(
        "attention_without_decay",
        "a causal mask stands where the decays D belong in Q K^T",
        _chunked(ATTENTION, 'attention=jnp.tril(einsum("nbhik,nbhjk->nbhij", q, k))'),
        right=("final_state",),
    ),
    _wrong(
        "attention_without_diagonal",
        "the mask of Q K^T is strict: a token does not read what it wrote",
        _chunked(ATTENTION, 'attention=jnp.tril(einsum("nbhik,nbhjk->nbhij", q, k) * D, -1)'),
        right=("final_state",),
    ),
    _wrong("s_without_decay", "S is built without the decays", _chunked(S, S.replace(" * D", ""))),
    _wrong("s_from_the_second_diagonal", "the strict mask of S starts at -2", _chunked(S, S.replace("-1)", "-2)"))),
    Fault(
        "s_with_diagonal",
        "the mask of S includes the diagonal",
        "chunk",
        "o",
        ("long_memory", "typical"),
        (
            _chunked(S, S.replace("-1)", "0)")),
            _inversion(INVERSE, INVERSE.replace("(S, identity", "(identity + S, identity").replace("True)", "False)")),
        ),
    ),
    _wrong(
        "beta_on_columns_of_s",
        "beta stands on the columns of S, not on its rows",
        _chunked(S, S.replace("beta[..., None]", "beta[..., None, :]")),
    ),
    _wrong("t_transposed", "T is transposed", _chunked(T, "T = jnp.swapaxes(invert(S), -1, -2)")),
    _wrong(
        "equal_decays_masked",
        "a decay of exp(0) is taken for a masked one",
        _chunked(ATTENTION, f"{ATTENTION} * ((segment_sums(g) < 0) | jnp.eye(g.shape[-1], dtype=bool))"),
        "long_memory",
        "mixed_gates",
        right=("final_state",),
        source="fla #104",
    ),
    _wrong(
        "gates_not_reset",
        "the cumulative gate G is not reset at chunk starts",
        _chunked(G, f"{G}\n    G = G + jnp.cumsum(G[..., -1:], axis=0) - G[..., -1:]"),
    ),
)

WRITES_AND_READS = (
    _wrong(
        "w_from_undecayed_s",
        "w is built from an S without decays",
        _chunked(
            W, W.replace("T,", 'substitution(jnp.tril(beta[..., None] * einsum("nbhik,nbhjk->nbhij", k, k), -1)),')
        ),
    ),
    _wrong("w_with_decay_twice", "w has e^G twice", _chunked(W, W.replace("jnp.exp(G)", "jnp.exp(2 * G)"))),
    _wrong("w_without_decay", "w lacks e^G", _chunked(W, W.replace(" * jnp.exp(G)", ""))),
    _wrong("w_without_beta", "w lacks beta", _chunked(W, W.replace("(beta * jnp.exp(G))", "jnp.exp(G)"))),
    _wrong("u_without_beta", "u lacks beta", _chunked(U, U.replace("beta[..., None] * ", ""))),
    _wrong(
        "sign_of_w_h",
        "w h is added to u, not subtracted",
        _chunked(WRITTEN, WRITTEN.replace("chunk.u - ", "chunk.u + ")),
    ),
    _wrong(
        "update_with_u",
        "no delta term between chunks: the state takes up u, not u - w h",
        _chunked("chunk.k_decayed, written), o", "chunk.k_decayed, chunk.u), o"),
        quantity="final_state",
    ),
    _wrong(
        "read_with_u",
        "the reads inside a chunk see u, not u - w h",
        _chunked("chunk.attention, written)", "chunk.attention, chunk.u)"),
        right=("final_state",),
    ),
    _wrong(
        "state_not_decayed",
        "the state is not decayed over a chunk",
        _chunked("return chunk.decay[..., None, None] * h", "return h"),
    ),
    _wrong("reads_not_decayed", "the read of the entering state lacks e^G", _chunked(Q_DECAYED, "q_decayed=q")),
    _wrong(
        "writes_not_decayed", "K~ is K: writes do not decay to the end of the chunk", _chunked(K_DECAYED, "k_decayed=k")
    ),
    _wrong(
        "read_decay_exclusive",
        "the read of the entering state lacks the token's own decay",
        _chunked(Q_DECAYED, "q_decayed=jnp.exp(G - g)[..., None] * q"),
        right=("final_state",),
    ),
    _wrong(
        "write_decay_inclusive",
        "a write decays by its own token's gate once more until the end of the chunk",
        _chunked(K_DECAYED, "k_decayed=(D[..., -1, :] * jnp.exp(g))[..., None] * k"),
    ),
    _wrong(
        "reads_leaving_state",
        "a chunk reads the state that leaves it, not the one that enters it",
        _chunked(
            "chunk.q_decayed, h)",
            'chunk.q_decayed, chunk.decay[..., None, None] * h + einsum("bhck,bhcv->bhkv", chunk.k_decayed, written))',
        ),
        right=("final_state",),
    ),
    _wrong(
        "last_token_of_a_chunk_not_written",
        "the last token of each chunk does not reach the state",
        _chunked(K_DECAYED, f"k_decayed=({K_DECAYED.partition('=')[2]}).at[..., -1, :].set(0.0)"),
    ),
    _wrong(
        "first_token_of_a_chunk_reads_nothing",
        "the first token of each chunk does not read the state that enters",
        _chunked(Q_DECAYED, f"q_decayed=({Q_DECAYED.partition('=')[2]}).at[..., 0, :].set(0.0)"),
        right=("final_state",),
    ),
)

EXPONENTIALS = (
    _wrong(
        "exp_before_mask",
        "D is masked after exp: a finite forward, and gradients that are not",
        _chunked(D, "D = jnp.tril(jnp.exp(G[..., :, None] - G[..., None, :]))"),
        "strong_decay",
        quantity="dg",
        dtype="f32",
        right=("o", "final_state", "dk"),
    ),
    _wrong(
        "factored_exponentials_overflow",
        "D is the product of e^G and e^-G, which overflows",
        _chunked(D, "D = jnp.tril(jnp.exp(G)[..., :, None] * jnp.exp(-G)[..., None, :])"),
        "strong_decay",
        dtype="f32",
        source="executorch #21417",
    ),
    _wrong(
        "factored_exponentials_underflow",
        "D is a quotient of exponentials, which underflow and wipe out what was written",
        _chunked(D, "D = jnp.tril(jnp.exp(G)[..., :, None] / jnp.maximum(jnp.exp(G), 1e-30)[..., None, :])"),
        "strong_decay",
        "mixed_gates",
        dtype="f32",
        margin=4.0,
        source="tt-metal #56550",
    ),
)

INVERSES = (
    _wrong(
        "neumann_series_cut",
        "T is a Neumann series cut at 8 terms",
        _inversion(
            INVERSE,
            "T = identity\n    for _ in range(7):\n        T = identity - jnp.tril(S, -1) @ T\n    return T",
        ),
        "correlated_keys",
        "repeated_keys",
    ),
    _wrong(
        "neumann_by_doubling",
        "T is a product of powers of S, which explode where keys repeat",
        _inversion(
            INVERSE,
            "power, T = -jnp.tril(S, -1), identity - jnp.tril(S, -1)\n"
            "    for _ in range(5):\n"
            "        power = power @ power\n"
            "        T = T + T @ power\n"
            "    return T",
        ),
        "repeated_keys",
        dtype="f32",
        shape=WIDE,
        source="maxtext #4577",
    ),
)

FAULTS = (*MATRICES, *WRITES_AND_READS, *EXPONENTIALS, *INVERSES)
