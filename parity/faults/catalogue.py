"""All faults: the proof that the gate can be red."""

from parity.faults import backward, chunk, hand_over, interface, rule

CATALOGUE = (*hand_over.FAULTS, *chunk.FAULTS, *rule.FAULTS, *backward.FAULTS, *interface.FAULTS)
NULL_MODELS = ()
