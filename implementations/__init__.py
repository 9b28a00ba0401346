"""What is verified: implementations of the gated delta rule in jax. Never imports oracles or parity."""

from implementations.chunked import CHUNKED
from implementations.context_parallel.three_phase import THREE_PHASE
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.context_parallel.variants import VARIANTS as SCHEMES
from implementations.contract import Implementation
from implementations.pallas.composition import (
    PALLAS,
    PALLAS_BF16,
    PALLAS_FOLD,
    PALLAS_LOCAL_PASS,
    PALLAS_OVER_RANKS,
)
from implementations.sequential import SEQUENTIAL

# ALL meet the whole gate. VARIANTS are made of their parts, and meet what tests the difference.
ALL = (SEQUENTIAL, CHUNKED, TWO_PHASE, THREE_PHASE, PALLAS)
VARIANTS = (*SCHEMES, PALLAS_BF16, PALLAS_FOLD, PALLAS_LOCAL_PASS, PALLAS_OVER_RANKS)

__all__ = ["ALL", "VARIANTS", "Implementation"]
