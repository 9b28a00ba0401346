"""A large program over as many ranks as there are devices ends, however few cores there are."""

import jax
import pytest

from implementations.context_parallel.two_phase import TWO_PHASE
from parity.problem import Problem
from parity.run import run
from parity.shapes import Shape

LARGE = Shape("large", B=1, T=512, Hk=2, Hv=2, K=128, V=128, chunk_size=64)


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_large_program_on_every_device_ends(ranks):
    """Where threads are missing it hangs, and XLA ends the process after 40 seconds."""
    assert len(jax.devices()) == 8
    answer = run(TWO_PHASE, Problem("typical", LARGE, "f32"), ranks)
    assert answer.failures == {}
    assert [piece.shape[1] for piece in answer.pieces["o"]] == [512 // ranks] * ranks
