"""Mistakes in the rule of one token, as they look in chunks."""

from parity.faults.elsewhere import text as at
from parity.faults.elsewhere.text import text


def _s(decays: str) -> str:
    return at.S.replace("D,", f"jnp.exp(jnp.where(causal, {decays}, -jnp.inf)),")


EDITS = {
    "error_before_decay": (
        at.BEFORE,
        text(at.S, _s("G_before - G.mT")),
        text(at.W, at.W.replace("exp(G)", "exp(G_before)")),
    ),
    "decay_after_write": (
        at.BEFORE,
        text(at.D, at.D.replace("G.mT", "G_before.mT")),
        text(at.S, _s("G_before - G_before.mT")),
        text(at.W, at.W.replace("exp(G)", "exp(G_before)")),
        text(at.K_TO_END, at.K_TO_END.replace("- G)", "- G_before)")),
    ),
    "read_before_write": (text(at.ATTENTION, f"{at.ATTENTION} * (1 - jnp.eye(chunk_size, dtype=wide))"),),
    "no_delta_term": (
        text(at.U, "u = b * V"),
        text(at.W, "w = jnp.zeros_like(K)"),
    ),
    "beta_on_the_value_only": (
        text(at.S, at.S.replace("b * ", "")),
        text(at.W, at.W.replace("b * ", "")),
    ),
    # A decay below 0 has a complex logarithm; its exponential is real again.
    "gate_without_exp": (
        text(
            at.G,
            "G = jnp.cumsum(jnp.log(1 + 0j + _chunks(g.astype(wide)[..., None], chunk_size)), axis=-2)\n",
        ),
        text(at.D, f"{at.D}.real"),
        text(at.W, at.W.replace("exp(G)", "exp(G).real")),
        text(at.Q_FROM_START, at.Q_FROM_START.replace("exp(G)", "exp(G).real")),
        text(at.K_TO_END, at.K_TO_END.replace("- G)", "- G).real")),
        text(at.H, at.H.replace("exp(G_end)", "exp(G_end).real")),
    ),
}
