"""Where a failure is: by rank, by chunk, by head and by row, in sentences that are true of every wrong place.

Where everything is wrong there is nothing to say, and nothing is said.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from oracles.gated_delta_rule import GRADIENTS, OUTPUTS, QUANTITIES
from parity.diagnosis.distance import from_truth, results
from parity.run import IN_VJP, run
from parity.truth import STATES
from parity.unit import BLOCK
from parity.verdict import Verdict

OF_KEY_HEADS = ("dq", "dk")

APART = 2.0  # by this factor the mean gates of some heads must differ from those of the others, to be worth a word

Wrong = Bool[np.ndarray, "R B chunks H"]


@dataclass(frozen=True)
class Places:
    """What is wrong in the quantities that are read, and how tokens and heads are laid out.

    `wrong[quantity]`: by rank, row, chunk within the rank and head. `is_backward`: the outputs are right, so that
    mistakes spread towards the start of the sequence.
    """

    wrong: dict[str, Wrong]
    is_backward: bool
    ranks: int
    tokens: int  # of a rank
    chunk_size: int
    group: int
    mean_gates: np.ndarray

    @property
    def any(self) -> bool:
        """Whether a chunk is over the limit: the verdict's blocks are longer, and rms may hide what is nearly right."""
        return any(bool(x.any()) for x in self.wrong.values())

    @property
    def of_tokens(self) -> Wrong | None:
        """Wherever any quantity that has tokens is wrong, whatever the head: `[R, B, chunks, 1]`."""
        found = [x.any(axis=3, keepdims=True) for quantity, x in self.wrong.items() if quantity not in STATES]
        return np.asarray(np.any(found, axis=0)) if found else None


def read(verdict: Verdict) -> str:
    """A sentence a line; empty where no part of the answer is right."""
    wrong = [quantity for quantity in QUANTITIES if is_wrong(verdict, quantity)]
    if not wrong:
        return ""
    read_from = [quantity for quantity in wrong if quantity in OUTPUTS] or wrong
    of = "" if read_from == wrong else f" (read from {' and '.join(read_from)})"
    places = _places(verdict, read_from)
    rules: tuple[Callable[[Places], str], ...] = (_by_rank, _by_chunk, _by_head, _by_row)
    found = [rule(places) for rule in rules if places.any]
    lines = [_by_quantity(verdict, wrong), *(f"{line}{of}" for line in found if line)]
    return "\n".join(f"    {line}" for line in lines if line)


def is_wrong(verdict: Verdict, quantity: str) -> bool:
    """Measured, and wrong on some rank."""
    return any(not (f.passes or f.failure) for (_, name), f in verdict.findings.items() if name == quantity)


def _places(verdict: Verdict, quantities: list[str]) -> Places:
    case, shape = verdict.case, verdict.case.problem.shape
    found = results(run(case.implementation, case.problem, case.over))
    wrong: dict[str, Wrong] = {}
    for result, pieces in found.items():
        quantity = result.removesuffix(IN_VJP)
        if quantity in quantities:
            over = ~(from_truth(case, result, pieces, shape.chunk_size) <= verdict.findings[0, quantity].limit)
            wrong[quantity] = wrong.get(quantity, np.zeros_like(over)) | over
    return Places(
        wrong,
        quantities[0] in GRADIENTS,
        case.ranks,
        shape.T // case.ranks,
        shape.chunk_size,
        shape.Hv // shape.Hk,
        case.problem.arguments["g"].astype(np.float64).mean(axis=(0, 1)),
    )


def _by_quantity(verdict: Verdict, wrong: list[str]) -> str:
    findings = [verdict.findings.get((0, quantity)) for quantity in QUANTITIES]
    measured = [finding.quantity for finding in findings if finding and not finding.failure]
    if not any(quantity in OUTPUTS for quantity in wrong):
        where = f"in {wrong[0]} alone" if len(wrong) == 1 else f"in {_listed(wrong)}"
        return f"both outputs are right: the mistake is in the backward, {where}"
    if _is_right_in_the_plain_call(verdict):
        return "the plain call is right, and the forward under jax.vjp is not: the two are different functions"
    if "o" not in wrong:
        return "o is right and the final state is not: the states that o reads are right, and what is returned is not"
    if "final_state" not in wrong:
        return "the final state is right and o is not"
    right = [quantity for quantity in measured if quantity not in wrong]
    return f"right in {_listed(right)}" if right else ""


def _is_right_in_the_plain_call(verdict: Verdict) -> bool:
    case = verdict.case
    answer = run(case.implementation, case.problem, case.over)
    return bool(answer.in_vjp) and all(
        bool((from_truth(case, q, answer.pieces[q], BLOCK) <= verdict.findings[0, q].limit).all()) for q in OUTPUTS
    )


def _by_rank(places: Places) -> str:
    """Which ranks are wrong in what has tokens; of a state, which copies."""
    every, last = list(range(places.ranks)), places.ranks - 1
    over = places.of_tokens
    if over is None:
        copies = [np.any(x, axis=(1, 2, 3)) for x in places.wrong.values()]
        wrong = np.flatnonzero(np.any(copies, axis=0)).tolist()
        name = " and ".join(places.wrong)
        return "" if wrong == every else f"{name} is wrong on {_ranks(wrong)} only: the ranks' copies differ"
    wrong = np.flatnonzero(over.any(axis=(1, 2, 3))).tolist()
    if wrong == every or not wrong:
        return ""
    if wrong == every[1:] and not places.is_backward:
        return "right on rank 0 and wrong from rank 1 on: the state is not handed over as it should be"
    if wrong == every[:-1] and places.is_backward:
        return (
            f"right on rank {last}, the last, and wrong on all before it: the cotangent of the state is not handed "
            f"over as it should be"
        )
    if len(wrong) == 1:
        return f"wrong on rank {wrong[0]} only"
    if wrong == every[wrong[0] :]:
        return f"right on {_ranks(every[: wrong[0]])} and wrong from rank {wrong[0]} on"
    return f"wrong on {_ranks(wrong)} only"


def _by_chunk(places: Places) -> str:
    """Which chunks are wrong, counted within each rank, in the direction in which a mistake spreads."""
    over = places.of_tokens
    if over is None or not over.any() or over.shape[2] == 1:
        return ""
    by_chunk = np.asarray(np.any(over, axis=(1, 3)))
    last = by_chunk.shape[1] - 1
    tail = places.tokens - last * places.chunk_size
    of_each = " of each rank" if places.ranks > 1 else ""
    if tail < places.chunk_size and not by_chunk[:, :last].any():
        return (
            f"wrong in the last chunk{of_each} only, which is ragged ({tail} of {places.chunk_size} tokens): "
            f"what pads it, or where it ends"
        )
    inner, edge = ("last", by_chunk[:, -1]) if places.is_backward else ("first", by_chunk[:, 0])
    onwards = "before it" if places.is_backward else "after it"
    if not edge.any():
        return f"right in the {inner} chunk{of_each} and wrong {onwards}: what goes from chunk to chunk"
    start = by_chunk[-1, ::-1] if places.is_backward else by_chunk[0]
    if places.ranks > 1 and start.any() and not start[0]:
        return f"right in the {inner} chunk of the sequence and wrong {onwards}: what goes from chunk to chunk"
    return ""


def _by_head(places: Places) -> str:
    """Which value heads are wrong, or which key heads where dq or dk alone are."""
    of_value_heads = [x for quantity, x in places.wrong.items() if quantity not in OF_KEY_HEADS]
    of_key_heads = [x for quantity, x in places.wrong.items() if quantity in OF_KEY_HEADS]
    key_heads = {head for x in of_key_heads for head in _axis(x, 3)}
    if not of_value_heads:
        count = of_key_heads[0].shape[3]
        return "" if len(key_heads) == count else f"wrong in key {_heads(sorted(key_heads))} only"
    wrong = sorted({head for x in of_value_heads for head in _axis(x, 3)})
    count, group = of_value_heads[0].shape[3], places.group
    if len(wrong) == count or not key_heads <= {head // group for head in wrong}:
        return ""
    return f"wrong in value {_heads(wrong)} only{_what_these_heads_share(wrong, places)}"


def _what_these_heads_share(wrong: list[int], places: Places) -> str:
    count, group = len(places.mean_gates), places.group
    key_heads = count // group
    if group > 1 and key_heads > 1 and wrong == [h for h in range(count) if h % key_heads != h // group]:
        return ": those that read another key head where key heads are tiled, not repeated"
    if wrong == list(range(1, count)):
        return ": all but head 0"
    if group > 1 and wrong == [h for h in range(count) if h % group]:
        return ": all but the first of each key head"
    if group > 1 and wrong == [h for h in range(count) if h // group == wrong[0] // group]:
        return f": those of key head {wrong[0] // group}"
    decay = np.abs(places.mean_gates)
    others = [head for head in range(count) if head not in wrong]
    if len(wrong) > 1 and APART * max(decay[wrong]) <= min(decay[others]):
        return ", those that decay least"
    if len(wrong) > 1 and APART * max(decay[others]) <= min(decay[wrong]):
        return ", those that decay most"
    return ""


def _by_row(places: Places) -> str:
    wrong = sorted({row for x in places.wrong.values() for row in _axis(x, 1)})
    count = next(iter(places.wrong.values())).shape[1]
    if len(wrong) == count or not wrong:
        return ""
    if wrong == list(range(1, count)):
        return "right in batch row 0 and wrong in every other"
    return f"wrong in batch {'row' if len(wrong) == 1 else 'rows'} {_listed(wrong)} only"


def _axis(wrong: Wrong, axis: int) -> list[int]:
    """The indices along an axis at which anything is wrong."""
    return np.flatnonzero(wrong.any(axis=tuple(i for i in range(4) if i != axis))).tolist()


def _ranks(ranks: list[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {_listed(ranks)}"


def _heads(heads: list[int]) -> str:
    return f"{'head' if len(heads) == 1 else 'heads'} {_listed(heads)}"


def _listed(names: list) -> str:
    *others, last = (str(name) for name in names)
    return f"{', '.join(others)} and {last}" if others else last
