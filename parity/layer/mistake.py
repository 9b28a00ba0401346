"""What a mistake of the layer is, and how it is made: by small edits of right source code."""

from dataclasses import dataclass, replace
from functools import cache

from implementations.contract import Dtype
from parity.faults.edits import Edit, edited, is_within
from parity.layer.problem import Problem
from parity.layer.run import AROUND, Around

LAYER, CONV = "implementations.layer", "implementations.causal_conv"
HALO = "implementations.context_parallel.halo_conv"


@dataclass(frozen=True)
class Mistake:
    """`edits` of the layer's source, or of a module that it or its convolution is made of.

    In `problem` exactly the quantities of `wrong` are wrong. `cause`: one line for the reader of a failure.
    `ranks`: how many it takes.
    """

    name: str
    cause: str
    edits: tuple[Edit, ...]
    wrong: tuple[str, ...]
    regime: str = "typical"
    dtype: Dtype = "f64"
    ranks: int | None = None
    packing: str = ""
    padding: str = ""

    @property
    def problem(self) -> Problem:
        """That shows it."""
        return Problem(self.regime, self.dtype, packing=self.packing, padding=self.padding)

    @property
    def around(self) -> Around:
        """What it is shown in: the simplest rule, or the fold over ranks."""
        return planted(self, AROUND["sequential" if self.ranks is None else "fold_4ranks"])

    def applies_to(self, around: Around, problem: Problem) -> bool:
        """Whether it can be made there, and would show."""
        needs = [
            (self.ranks, around.ranks),
            (self.packing, problem.packing),
            (self.padding, problem.padding),
            (self.dtype != "f64", problem.dtype != "f64"),
        ]
        if any(need and not has for need, has in needs):
            return False
        return any(is_within(target, *self.edits) for target in _targets(around))


@cache
def planted(mistake: Mistake, around: Around) -> Around:
    """`around`, with the mistake in it. Raises ValueError where an edit finds not exactly one place."""
    parts = {
        part: edited(target, *mistake.edits)
        for target, part in _targets(around).items()
        if is_within(target, *mistake.edits)
    }
    return replace(around, name=f"{around.name}_with_{mistake.name}", **parts)


def _targets(around: Around) -> dict[str, str]:
    """What an edit may be within, with the part of `around` that it is. On one device the layer has its convolution."""
    layer = {f"{LAYER}:gated_delta_net": "layer"}
    return layer if around.ranks is None else layer | {f"{HALO}:halo_conv": "convolution"}
