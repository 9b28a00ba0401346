"""Mistakes in the affine map of a rank: in the run from `[0 | I]`, not in the one from the state that enters."""

from parity.faults.elsewhere import text as at
from parity.faults.elsewhere.text import in_the_map, text

# The columns of the state that begin as I, not as 0.
_OF_A = "(jnp.arange(h.shape[-1]) >= h.shape[-1] - h.shape[-2])"
_CHUNKS_REVERSED = (
    "def reversed_chunks(x: Array) -> Array:\n"
    "            whole = jnp.flip(_chunks(x.reshape(*x.shape[:3], -1), chunk_size), 2)\n"
    "            tokens = _tokens(jnp.moveaxis(whole, 2, 0), whole.shape[2] * chunk_size)\n"
    "            return tokens.reshape(*tokens.shape[:2], *x.shape[2:])\n\n"
    "        start = jnp.concatenate([jnp.zeros_like(h0), identity], axis=-1)\n"
    "        _, {} = rule(*map(reversed_chunks, (q, k, values, g, beta)), start)\n"
)


_H = at.H.strip()

EDITS = {
    "transition_transposed": (text("A_of[other], state", "A_of[other].mT, state"),),
    "transition_zero": in_the_map(_H, "h = product(K_to_end.mT, u)"),
    "transition_sign": in_the_map(at.NEW, "new = u + product(w, h)"),
    "transition_without_decay": in_the_map(_H, "h = h + product(K_to_end.mT, new)"),
    "transition_decayed_whole": in_the_map(at.NEW, "new = u - jnp.exp(G_end) * product(w, h)"),
    "transition_without_delta": in_the_map(at.NEW, "new = u"),
    "transitions_in_reverse_order": (
        text(
            at.SPLIT,
            _CHUNKS_REVERSED.format("reversed_end")
            + "        B, A = end[..., : v.shape[-1]], reversed_end[..., v.shape[-1] :]",
        ),
    ),
    "pairs_in_reverse_order": (text(at.MAP, _CHUNKS_REVERSED.format("end").rstrip()),),
    "writes_not_carried": in_the_map(
        _H, f"h = jnp.where({_OF_A}, jnp.exp(G_end) * h + product(K_to_end.mT, new), h + product(K_to_end.mT, u))"
    ),
    "earlier_writes_lost": in_the_map(
        _H, f"h = jnp.where({_OF_A}, jnp.exp(G_end) * h + product(K_to_end.mT, new), product(K_to_end.mT, u))"
    ),
    "last_chunk_not_folded": (
        text(
            "rule(q, k, values, g, beta,",
            "rule(*(x[:, : (x.shape[1] - 1) // chunk_size * chunk_size] for x in (q, k, values, g, beta)),",
        ),
    ),
    "last_token_not_folded": (
        text("rule(q, k, values, g, beta,", "rule(*(x[:, :-1] for x in (q, k, values, g, beta)),"),
    ),
}
