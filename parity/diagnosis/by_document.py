"""Which documents of packed rows are wrong: those that follow another, or those that one follows."""

import numpy as np

from oracles.gated_delta_rule import GRADIENTS, OUTPUTS
from oracles.segments import numbered
from parity.diagnosis.by_place import is_wrong
from parity.diagnosis.distance import from_truth, results
from parity.run import IN_VJP, REPLICATED, run
from parity.verdict import Verdict


def read(verdict: Verdict) -> str:
    """One sentence; empty where a row is one document, and where no quantity of tokens is wrong."""
    wrong = [q for q in dict.fromkeys(q for _, q in verdict.findings) if q not in REPLICATED and is_wrong(verdict, q)]
    ids = verdict.case.problem.segment_ids
    if ids is None or not wrong:
        return ""
    read_from = [quantity for quantity in wrong if quantity in OUTPUTS] or wrong
    is_backward = read_from[0] in GRADIENTS
    over, document = _by_token(verdict, read_from), numbered(ids, ids.shape)
    edge = document.max(axis=1) if is_backward else np.zeros(len(ids), int)
    bad = [{int(number) for number in document[row][over[row]]} for row in range(len(ids))]
    count = sum(len(of_row) for of_row in bad)
    if not count:  # a token is over its limit in no document: what is wrong shows in the sum over many
        return ""
    of = f"{count} of {int((document.max(axis=1) + 1).sum())} documents are wrong"
    which = "last" if is_backward else "first"
    if any(int(edge[row]) in of_row for row, of_row in enumerate(bad)):
        return f"    {of}, the {which} of a row among them"
    what = (
        "the cotangent of one document's state reaches the one before"
        if is_backward
        else ("the state of one document reaches the next, or is lost in the wrong place")
    )
    return f"    {of}, and in no row the {which}: {what}"


def _by_token(verdict: Verdict, quantities: list[str]) -> np.ndarray:
    """`[B, T]`: whether any of `quantities` is over its limit there, in any head."""
    case = verdict.case
    over = np.zeros((case.problem.shape.B, case.problem.shape.T), bool)
    for result, pieces in results(run(case.implementation, case.problem, case.over)).items():
        quantity = result.removesuffix(IN_VJP)
        if quantity in quantities:
            units = from_truth(case, result, pieces, 1)  # [R, B, T / R, H]
            beyond = np.any(~(units <= verdict.findings[0, quantity].limit), axis=3, keepdims=True)
            over |= beyond.transpose(1, 0, 2, 3).reshape(over.shape)
    return over
