"""Mistakes inside a chunk."""

from parity.faults.elsewhere import text as at
from parity.faults.elsewhere.text import text

EDITS = {
    "attention_without_decay": (text(at.ATTENTION, "attention = product(Q, K.mT) * causal"),),
    "attention_without_diagonal": (text(at.ATTENTION, "attention = jnp.tril(product(Q, K.mT) * D, -1)"),),
    "s_without_decay": (text(at.S, "S = jnp.tril(b * product(K, K.mT), -1)"),),
    "s_from_the_second_diagonal": (text(at.S, "S = jnp.tril(b * product(K, K.mT) * D, -2)"),),
    "s_with_diagonal": (text(at.S, "S = jnp.tril(b * product(K, K.mT) * D)"),),
    "beta_on_columns_of_s": (text(at.S, "S = jnp.tril(product(K, K.mT) * b.mT * D, -1)"),),
    "t_transposed": (text(at.T, f"{at.T}.mT"),),
    "equal_decays_masked": (text(at.ATTENTION, f"{at.ATTENTION} * ((G != G.mT) | jnp.eye(chunk_size, dtype=bool))"),),
    "gates_not_reset": (
        text(
            at.G,
            "G = _chunks(g.astype(wide)[..., None], chunk_size)\n"
            "    G = jnp.cumsum(G.reshape(*G.shape[:2], -1, 1), axis=2).reshape(G.shape)\n",
        ),
    ),
    "w_from_undecayed_s": (
        text(
            at.W,
            "undecayed = jnp.tril(b * product(K, K.mT), -1)\n"
            "    w = jnp.linalg.solve(jnp.eye(chunk_size, dtype=wide) + undecayed, b * jnp.exp(G) * K)",
        ),
    ),
    "w_with_decay_twice": (text(at.W, "w = product(T, b * jnp.exp(G) ** 2 * K)"),),
    "w_without_decay": (text(at.W, "w = product(T, b * K)"),),
    "w_without_beta": (text(at.W, "w = product(T, jnp.exp(G) * K)"),),
    "u_without_beta": (text(at.U, "u = product(T, V)"),),
    "sign_of_w_h": (text(at.NEW, "new = u + product(w, h)"),),
    "update_with_u": (text(at.H, at.H.replace("new", "u")),),
    "read_with_u": (text(at.O, at.O.replace("new", "u")),),
    "state_not_decayed": (text(at.H, at.H.replace("jnp.exp(G_end) * h", "h")),),
    "reads_not_decayed": (text(at.Q_FROM_START, "Q_from_start = Q\n"),),
    "writes_not_decayed": (text(at.K_TO_END, "K_to_end = K\n"),),
    "read_decay_exclusive": (at.BEFORE, text(at.Q_FROM_START, "Q_from_start = jnp.exp(G_before) * Q\n")),
    "write_decay_inclusive": (at.BEFORE, text(at.K_TO_END, "K_to_end = jnp.exp(G_end - G_before) * K\n")),
    "reads_leaving_state": (text(at.O + at.H, at.H + at.O),),
    "last_token_of_a_chunk_not_written": (
        text(at.H, at.H.replace("K_to_end.mT, new", "K_to_end[..., :-1, :].mT, new[..., :-1, :]")),
    ),
    "first_token_of_a_chunk_reads_nothing": (
        text(at.Q_FROM_START, "Q_from_start = (jnp.arange(chunk_size)[:, None] > 0) * jnp.exp(G) * Q\n"),
    ),
    "exp_before_mask": (text(at.D, "D = jnp.where(causal, jnp.exp(G - G.mT), 0.0)"),),
    "factored_exponentials_overflow": (
        text(at.D, "D = jnp.where(causal, jnp.exp(G) * jnp.exp(-G.mT), 0.0)"),
        text(at.K_TO_END, "K_to_end = jnp.exp(G_end) * jnp.exp(-G) * K\n"),
    ),
    "factored_exponentials_underflow": (
        text(at.D, "D = jnp.where(causal, jnp.exp(G) / jnp.maximum(jnp.exp(G.mT), 1e-30), 0.0)"),
        text(at.K_TO_END, "K_to_end = jnp.exp(G_end) / jnp.maximum(jnp.exp(G), 1e-30) * K\n"),
    ),
    "neumann_series_cut": (text(at.T, "T = sum(jnp.linalg.matrix_power(-S, n) for n in range(8))"),),
    "neumann_by_doubling": (
        text(
            at.T,
            "T = jnp.eye(chunk_size, dtype=wide) - S\n"
            "    for doubling in range(1, chunk_size.bit_length() - 1):\n"
            "        T = product(T, jnp.eye(chunk_size, dtype=wide) + jnp.linalg.matrix_power(S, 2**doubling))",
        ),
    ),
}
