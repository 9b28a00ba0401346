"""Mistakes at a ragged tail. What a padded token holds is part of the mistake, and the same as in the catalogue."""

from parity.faults.edits import Edit
from parity.faults.elsewhere import text as at
from parity.faults.elsewhere.text import text

_K = "K = _chunks(jnp.repeat(k.astype(wide), group, axis=2), chunk_size)\n"
_V = "V = _chunks(v.astype(wide), chunk_size)\n"
_B = "b = _chunks(beta.astype(wide)[..., None], chunk_size)\n"


def _padded(line: str, value: float) -> Edit:
    """The tokens that fill the last chunk hold `value`."""
    return text(line, line.replace("chunk_size)", f"chunk_size, {value})"))


_FILLED = (
    text('(x: Float[Array, "B T H size"], chunk_size: int)', "(x, chunk_size, value=0.0)"),
    text(at.PAD, f"{at.PAD[:-1]}, constant_values=value)"),
)
_GATED_PADS = (*_FILLED, _padded(at.G, -1.0))

EDITS = {
    "pads_repeat_the_last_token": (text(at.PAD, f'{at.PAD[:-1]}, mode="edge")'),),
    "pads_decay_the_state": _GATED_PADS,
    "pads_of_a_rank_decay_the_state": _GATED_PADS,
    "pads_erase": (*_FILLED, _padded(_K, 0.25), _padded(_B, 1.0)),
    "pads_write": (*_FILLED, _padded(_K, 0.25), _padded(_V, 1.0), _padded(_B, 1.0)),
    "chunk_decay_read_at_a_pad": (
        text(
            at.FACTORS, at.FACTORS.replace("G_end", "jnp.pad(G_end[:, :, :-1], [(0, 0)] * 2 + [(0, 1)] + [(0, 0)] * 2)")
        ),
    ),
    "pads_in_front": (text(at.PAD, at.PAD.replace("(0, missing)", "(missing, 0)")),),
    "tail_not_in_final_state": (
        text(
            at.SCAN,
            at.SCAN + "    h, _ = jax.lax.scan(chunk, initial_state.astype(wide), tuple(x[:-1] for x in factors))\n",
        ),
    ),
    "tail_output_missing": (
        text(
            at.OUTPUT,
            at.OUTPUT.replace("(o,", "(o * (jnp.arange(o.shape[0]) < o.shape[0] - 1)[:, None, None, None, None],"),
        ),
    ),
    "zero_times_infinity_at_pads": (
        text(
            at.ATTENTION,
            "real = _chunks(jnp.ones_like(V, shape=(*v.shape[:3], 1)), chunk_size) > 0\n"
            "    attention = product(Q, K.mT) * jnp.where(real, D, jnp.where(causal, jnp.exp(-G.mT), 0.0))",
        ),
    ),
}
