"""The mistakes of decoding that must be seen, and that a failure is compared with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from oracles.gated_delta_net import OUTPUTS
from parity.faults.edits import Edit, edited
from parity.layer.diagnosis import distance
from parity.layer.measure import Pieces, judged
from parity.layer.mistake import CONV
from parity.layer.problem import Problem

DECODE = "implementations.decode"
Target = Literal["step", "in_slots"]


@dataclass(frozen=True)
class Mistake:
    """`edit` of what `decode.target` is made of; exactly the outputs of `wrong` are wrong.

    `cause`: one line for the reader of a failure.
    """

    name: str
    cause: str
    target: Target
    edit: Edit
    wrong: tuple[str, ...]


_BEHIND = "return y[:, 0], conv, recurrent"
_READ = "jnp.where(told, held, 0)"
_OF_THE_RULE = ("y", "final_recurrent_state")

MISTAKES = {
    mistake.name: mistake
    for mistake in (
        Mistake(
            "conv_state_off_by_one",
            "a step hands on the state of the convolution one token late, which is the state that it got",
            "step",
            Edit(CONV, "of_last_document(tokens[:, x.shape[1] :]", "of_last_document(tokens[:, x.shape[1] - 1 : -1]"),
            OUTPUTS,
        ),
        Mistake(
            "recurrent_state_not_handed_over",
            "a step hands on the recurrent state that it got",
            "step",
            Edit(DECODE, _BEHIND, "return y[:, 0], conv, recurrent_state"),
            _OF_THE_RULE,
        ),
        Mistake(
            "recurrent_state_in_bf16",
            "the recurrent state is rounded to bf16 after every token",
            "step",
            Edit(DECODE, _BEHIND, "return y[:, 0], conv, jax.lax.reduce_precision(recurrent, 8, 7)"),
            _OF_THE_RULE,
        ),
        Mistake(
            "stale_slot",
            "a row without an initial state starts from what its slot holds",
            "in_slots",
            Edit(DECODE, _READ, "held"),
            _OF_THE_RULE,
        ),
        Mistake(
            "slot_always_taken_for_new",
            "every piece starts from zeros, whatever its row has left in the slot",
            "in_slots",
            Edit(DECODE, _READ, "jnp.zeros_like(held)"),
            OUTPUTS,
        ),
    )
}


@cache
def planted(mistake: Mistake) -> Callable[..., Any]:
    """`decode.step` or `decode.in_slots` with the mistake in it."""
    return edited(f"{DECODE}:{mistake.target}", mistake.edit)


def resembling(
    problem: Problem, failing: Pieces, target: Target, ask: Callable[[Callable[..., Any]], Pieces]
) -> list[Mistake]:
    """The mistakes in `target` that give the failing values, nearest first; `ask(planted)` is what one would answer."""
    of_truth, near = judged(problem, failing), {}
    for mistake in MISTAKES.values():
        if mistake.target == target:
            found = distance(problem, failing, ask(planted(mistake)), of_truth)
            if found is not None:
                near[mistake.name] = found
    return [MISTAKES[name] for name in sorted(near, key=near.__getitem__)]
