"""The loss of a training run is that of the truth at every step, on any number of ranks; agreement to a thousandth is
shown to prove nothing.
"""

import numpy as np
import pytest

from implementations.chunked import CHUNKED
from implementations.context_parallel.three_phase import THREE_PHASE
from implementations.context_parallel.two_phase import TWO_PHASE
from parity.faults.catalogue import CATALOGUE
from parity.tolerances.limits import limits
from parity.training import in_units, losses, truth

pytestmark = pytest.mark.gate

FAULTS = {fault.name: fault for fault in CATALOGUE}

RUNS = [
    (CHUNKED, "f32", 1),
    *((TWO_PHASE, "f32", ranks) for ranks in (1, 2, 4, 8)),
    *((TWO_PHASE, "f64", ranks) for ranks in (2, 8)),
    *((THREE_PHASE, "f32", ranks) for ranks in (2, 4, 8)),
]


@pytest.mark.parametrize(
    ("implementation", "dtype", "ranks"), RUNS, ids=[f"{x.name}_{dtype}_on_{ranks}" for x, dtype, ranks in RUNS]
)
def test_the_loss_of_every_step_is_that_of_the_truth(implementation, dtype, ranks):
    off = in_units(losses(implementation, dtype, ranks), dtype)
    assert off.max() <= limits().base[dtype].units, f"{off.max():.3g} units at step {off.argmax()}"


def test_the_run_learns():
    want, _ = truth("f32")
    assert want[-1] < 0.98 * want[0]
    assert (np.diff(want) < 0).all()


@pytest.mark.ranks(2)
def test_without_any_exchange_the_loss_agrees_to_a_thousandth_and_is_far_over_the_limit():
    """The mistake of thread 4, which was seen in no loss for 60 steps."""
    found = losses(FAULTS["no_exchange"].on(TWO_PHASE), "f32", ranks=2)
    want, _ = truth("f32")
    assert np.abs(found / want - 1).max() < 1e-3
    assert in_units(found, "f32").min() > 10 * limits().base["f32"].units


@pytest.mark.ranks(4)
def test_a_gradient_that_is_missing_shows_from_the_second_step_on():
    fault = FAULTS["entering_state_not_differentiated"]
    found = losses(fault.implementation, "f32", ranks=4)
    off = in_units(found, "f32")
    assert np.abs(found / truth("f32")[0] - 1).max() < 1e-3
    assert off[0] <= limits().base["f32"].units
    assert off[2:].min() > 5 * limits().base["f32"].units
