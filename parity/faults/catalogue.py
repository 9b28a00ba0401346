"""Every fault with where it must be seen: the proof that the gate can be red."""

from dataclasses import dataclass

from implementations.contract import Implementation
from parity.faults import hand_over, interface, rule
from parity.matrix import Case
from parity.problem import Problem
from parity.shapes import RAGGED

# In f64 a structural fault must exceed the limit by this factor: it is not a matter of precision.
LEAST_MARGIN = 1000.0


@dataclass(frozen=True)
class Fault:
    """`quantity` must be wrong in `regime`; `right` must not be, which shows that the fault is what it says it is.

    `first_bad_rank`: ranks below it must be right in `quantity` (1 for a fault of the hand-over).
    """

    implementation: Implementation
    regime: str
    quantity: str
    right: tuple[str, ...] = ()
    first_bad_rank: int = 0
    ranks: int = 1

    @property
    def name(self) -> str:
        return self.implementation.name

    @property
    def case(self) -> Case:
        """In f64 and the ragged shape, where every axis has a length of its own."""
        return Case(self.implementation, Problem(self.regime, RAGGED, "f64"), self.ranks)


CATALOGUE = (
    Fault(hand_over.NO_EXCHANGE, "long_memory", "o", first_bad_rank=1, ranks=4),
    Fault(hand_over.PREVIOUS_B_ONLY, "long_memory", "o", first_bad_rank=1, ranks=4),
    Fault(hand_over.TRANSITION_TRANSPOSED, "correlated_keys", "o", first_bad_rank=1, ranks=4),
    Fault(rule.UPDATE_WITH_U, "long_memory", "final_state"),
    Fault(rule.ERROR_BEFORE_DECAY, "typical", "o"),
    Fault(rule.VALUE_HEADS_TILED, "long_memory", "o"),
    Fault(interface.INITIAL_STATE_IGNORED, "long_memory", "dh0"),
    Fault(interface.FINAL_STATE_COTANGENT_DROPPED, "long_memory", "dh0", right=("o", "final_state", "dq")),
)

# What says nothing must fail in every quantity.
NULL_MODELS = (Fault(interface.ZEROS, "typical", "o"),)
