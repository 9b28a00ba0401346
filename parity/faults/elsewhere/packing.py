"""Mistakes of packed documents."""

from parity.faults.elsewhere import text as at
from parity.faults.elsewhere.text import text

_BEFORE = "id_before = jnp.where(rank == 0, ids[:, 0], last_of[rank - 1])"
_MASKED = "w, Q_from_start, K_to_end = of_entering * w, of_entering * Q_from_start, of_leaving * K_to_end"
_THROUGH = "        G_end = jnp.where(of_entering[..., -1:, :], G_end, -jnp.inf)\n"
_OF_ALL_TOKENS = "jnp.exp(jnp.where(jnp.tril(jnp.ones_like(causal)), G - G.mT, -jnp.inf))"

EDITS = {
    "start_at_a_rank_edge_missed": (text(_BEFORE, "id_before = ids[:, 0]"),),
    "every_rank_starts_a_document": (text(_BEFORE, _BEFORE.replace("last_of[rank - 1]", "ids[:, 0] - 1")),),
    "entering_state_goes_on_through_a_start": (
        text(_MASKED, "K_to_end = of_leaving * K_to_end"),
        text(_THROUGH, ""),
    ),
    "state_before_a_start_kept": (text(_THROUGH, ""),),
    "documents_attend_to_each_other": (text(at.ATTENTION, at.ATTENTION.replace("* D", f"* {_OF_ALL_TOKENS}")),),
    "documents_correct_each_other": (text(at.S, at.S.replace("* D", f"* {_OF_ALL_TOKENS}")),),
    "writes_before_a_start_kept": (text(_MASKED, _MASKED.replace("of_leaving * ", "")),),
    "documents_told_apart_by_an_id_that_comes_again": (
        text("document = number.reshape", "document = (number % 3).reshape"),
    ),
}
