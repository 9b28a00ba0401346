"""What a matrix unit would have computed, on a machine that has none."""

from parity.arithmetic.emulate import CannotEnter, emulate
from parity.arithmetic.passes import Passes, Policy

__all__ = ["CannotEnter", "Passes", "Policy", "emulate"]
