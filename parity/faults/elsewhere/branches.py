"""Mistakes in gradients alone: what flows back is stopped, or comes from another function of the same value."""

from parity.faults.elsewhere import text as at
from parity.faults.elsewhere.text import replayed_from, stopped, text

# A function of S whose adjoint is `-T dT T` where it should be `-T^T dT T^T`.
_NOT_TRANSPOSED = "product(product(T.mT, S), T.mT)"

EDITS = {
    "inverse_adjoint_not_transposed": (
        text(
            at.T,
            at.T.replace("T = ", "T = jax.lax.stop_gradient(") + ")\n"
            f"    T = T + (jax.lax.stop_gradient({_NOT_TRANSPOSED}) - {_NOT_TRANSPOSED})",
        ),
    ),
    "inverse_adjoint_not_masked": (
        text(
            at.S,
            "S = b * product(K, K.mT) * jnp.exp(jnp.minimum(G - G.mT, 0.0))\n"
            "    S = S + jax.lax.stop_gradient(jnp.tril(S, -1) - S)",
        ),
    ),
    "delta_term_not_differentiated": stopped(at.NEW, "product(w, h)"),
    "gradients_end_at_chunk_starts": (text(at.NEW, f"h = jax.lax.stop_gradient(h)\n        {at.NEW}"),),
    "dk_without_attention": stopped(at.ATTENTION, "K.mT"),
    "dk_without_w": (text(at.W, at.W.replace("* K)", "* jax.lax.stop_gradient(K))")),),
    "dbeta_without_w": (text(at.W, at.W.replace("b *", "jax.lax.stop_gradient(b) *")),),
    "dbeta_without_u": (text(at.U, at.U.replace("b *", "jax.lax.stop_gradient(b) *")),),
    "dbeta_without_s": (text(at.S, at.S.replace("b *", "jax.lax.stop_gradient(b) *")),),
    "dg_without_reverse_sum": (
        text(
            at.G,
            "G = _chunks(g.astype(wide)[..., None], chunk_size)\n"
            "    G = G + jax.lax.stop_gradient(jnp.cumsum(G, axis=-2) - G)\n",
        ),
    ),
    "dg_without_attention": stopped(at.ATTENTION, "D"),
    "dg_without_chunk_decay": stopped(at.H, "jnp.exp(G_end)"),
    "dg_without_writes": stopped(at.K_TO_END, "jnp.exp(G_end - G)"),
    "transition_not_differentiated": (text(at.GATHER, at.GATHER.replace("((A,", "((jax.lax.stop_gradient(A),")),),
    "entering_state_not_differentiated": (replayed_from("jax.lax.stop_gradient(entering)"),),
    "one_rank_sends_no_gradient": (replayed_from("jnp.where(rank == 3, jax.lax.stop_gradient(entering), entering)"),),
}
