"""Mistakes between ranks: in which state enters which, and in which is returned."""

from parity.faults.edits import Edit
from parity.faults.elsewhere import text as at
from parity.faults.elsewhere.text import replayed_from, text


def _return(final_state: str) -> Edit:
    return text(at.RETURN, at.RETURN.replace("state", final_state))


EDITS = {
    "no_exchange": (text(at.LOOP, "for other in range(1):"), _return("B_of[-1]")),
    "no_exchange_and_own_final_states": (
        text(at.LOOP, "for other in range(1):"),
        text(at.REPLAY, at.REPLAY.replace("_", "state")),
    ),
    "previous_b_only": (
        text(
            at.ENTER + at.NEXT,
            "            left = B_of[other - 1] if other > 0 else h0\n"
            + at.ENTER.replace("state", "left")
            + at.NEXT.replace("], state)", "], left)"),
        ),
    ),
    "prefix_from_the_last_rank": (text(at.LOOP, "for other in reversed(range(ranks)):"),),
    "inclusive_prefix": (text(at.ENTER + at.NEXT, at.NEXT + at.ENTER),),
    "entering_states_one_rank_late": (
        text(at.START, "entering, state = h0, h0"),
        text(at.ENTER, at.ENTER.replace("rank ==", "rank - 1 ==")),
    ),
    "first_rank_enters_the_final_state": (replayed_from("jnp.where(rank == 0, state, entering)"),),
    "initial_state_on_the_first_rank_only": (
        text(at.START, "entering, state = jnp.zeros_like(h0), jnp.zeros_like(h0)"),
        replayed_from("jnp.where(rank == 0, h0, entering)"),
    ),
    "initial_state_on_every_rank": (replayed_from("jnp.where(rank == 0, h0, entering + h0)"),),
    "one_rank_starts_from_zero": (replayed_from("jnp.where(rank == 2, 0.0, entering)"),),
    "last_rank_starts_from_zero": (replayed_from("jnp.where(rank == ranks - 1, 0.0, entering)"),),
    "one_head_not_handed_over": (replayed_from("entering.at[:, -1].multiply(rank == 0)"),),
    "row_0_handed_to_all_rows": (replayed_from("jnp.where(rank == 0, entering, entering[:1])"),),
    "exchange_misses_a_round": (
        text(at.START, "entering, state = h0, h0"),
        text(
            at.ENTER,
            "            known = (rank - 4 <= other) & (other < rank)\n"
            "            entering = jnp.where(known, _matmul(A_of[other], entering) + B_of[other], entering)\n",
        ),
    ),
    "final_state_of_the_first_rank": (_return("_matmul(A_of[0], h0) + B_of[0]"),),
    "final_state_of_each_rank": (text(at.REPLAY, at.REPLAY.replace("_", "state")),),
    "final_state_from_zero": (_return("B_of[-1]"),),
    "final_state_entering_the_last_rank": (text(at.ENTER, f"            last = state\n{at.ENTER}"), _return("last")),
    "final_state_without_initial_state": (
        text(at.START, f"{at.START}\n        bare = jnp.zeros_like(h0)"),
        text(at.NEXT, at.NEXT + at.NEXT.replace("state", "bare")),
        _return("bare"),
    ),
}
