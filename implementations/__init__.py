"""What is verified: implementations of the gated delta rule in jax. Never imports oracles or parity."""

from implementations.chunked import CHUNKED
from implementations.context_parallel.three_phase import THREE_PHASE
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.context_parallel.variants import VARIANTS
from implementations.contract import Implementation
from implementations.sequential import SEQUENTIAL

# ALL meet the whole gate. VARIANTS are made of their parts, and meet what tests the difference.
ALL = (SEQUENTIAL, CHUNKED, TWO_PHASE, THREE_PHASE)

__all__ = ["ALL", "VARIANTS", "Implementation"]
