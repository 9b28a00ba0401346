"""How many units a correct implementation may be off."""

from implementations.contract import Dtype
from parity.precision import UNIT_ROUNDOFF

# Measured on our implementations, over the gate and 20 fresh draws of every regime: at most 12.3 units in f64 (in a
# block of one element), 9.3 in f32, 0.65 where only the output is bf16. Other right code reached 21.5 in f32, and 1.8
# with products in bf16.
LIMITS: dict[Dtype, float] = {"f64": 32.0, "f32": 32.0, "bf16": 2.0}

# The float64 oracle's certified error, as a share of the limit: it must not decide a verdict.
CERTIFIED_SHARE: dict[Dtype, float] = {"f64": 0.25, "f32": 1e-3, "bf16": 1e-3}


def limit(arithmetic: Dtype, output: Dtype) -> float:
    """The limit in units where `arithmetic` is claimed and the quantity has dtype `output`: that of the coarser."""
    return LIMITS[max(arithmetic, output, key=UNIT_ROUNDOFF.__getitem__)]
