"""All faults: the proof that the gate can be red."""

from parity.faults import (
    backward,
    branches,
    chunk,
    hand_over,
    interface,
    kernels,
    null_models,
    packing,
    padding,
    precision,
    rule,
    transition,
)
from parity.faults.fault import Fault

CATALOGUE: tuple[Fault, ...] = (
    *hand_over.FAULTS,
    *transition.FAULTS,
    *chunk.FAULTS,
    *rule.FAULTS,
    *backward.FAULTS,
    *branches.FAULTS,
    *precision.FAULTS,
    *interface.FAULTS,
    *padding.FAULTS,
    *packing.FAULTS,
    *kernels.FAULTS,
)
NULL_MODELS: tuple[Fault, ...] = null_models.FAULTS
