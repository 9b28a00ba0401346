"""The same mistakes in other code: what the diagnosis is measured on.

A fault is recognised by what it does to a result, and in the code that the catalogue plants it in anything would be
recognised. So each is made once more, in `parity.other_code.textbook`: by an edit of its text that means the same
mistake, or, where the fault is a transformation and no edit stands here, around it.
"""

from collections.abc import Mapping
from dataclasses import replace

from implementations.contract import Implementation
from parity.faults import kernels
from parity.faults.catalogue import CATALOGUE
from parity.faults.edits import Edit, edited
from parity.faults.elsewhere import branches, chunk, hand_over, packing, padding, precision, rule, transition
from parity.faults.fault import Fault
from parity.other_code.textbook import TEXTBOOK, TEXTBOOK_OVER_RANKS

EDITS: Mapping[str, tuple[Edit, ...]] = (
    hand_over.EDITS
    | transition.EDITS
    | chunk.EDITS
    | rule.EDITS
    | branches.EDITS
    | precision.EDITS
    | padding.EDITS
    | packing.EDITS
)

# Faults that the other code cannot have, and why.
NOT_ELSEWHERE: Mapping[str, str] = {
    fault.name: "it has no memory that a kernel fills, no grid, and no ladder" for fault in kernels.FAULTS
}


def _planted(fault: Fault) -> Implementation:
    right = TEXTBOOK_OVER_RANKS if fault.ranks > 1 else TEXTBOOK
    name = f"{fault.name}_elsewhere"
    if fault.name in EDITS:
        return replace(right, name=name, call=edited(f"parity.other_code.textbook:{right.name}", *EDITS[fault.name]))
    return replace(fault.on(right), name=name)


PLANTED_ELSEWHERE: Mapping[str, Implementation] = {
    fault.name: _planted(fault) for fault in CATALOGUE if fault.name not in NOT_ELSEWHERE
}
