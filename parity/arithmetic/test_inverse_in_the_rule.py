"""One pass of bf16 in the inverse destroys the recurrence; three are enough, for what they claim (thread 4)."""

from functools import cache

import pytest

from oracles.gated_delta_rule import QUANTITIES
from parity.arithmetic.inverse_in_the_rule import INVERSES, in_units, with_inverse
from parity.precision import UNIT_ROUNDOFF
from parity.tolerances.limits import limits
from parity.ut_inversion import BF16X3

# Where rows of T cancel, or errors of it stay in the state.
WHERE_IT_MATTERS = ("long_memory", "correlated_keys", "repeated_keys", "beta_near_two")
LIMIT = limits().base["f32"].units

each_inverse = pytest.mark.parametrize("inverse", INVERSES)
where_it_matters = pytest.mark.parametrize("regime", WHERE_IT_MATTERS)
implementation_of = cache(with_inverse)
T_ENTERS = [quantity for quantity in QUANTITIES if quantity != "dh0"]


@where_it_matters
@each_inverse
def test_one_pass_destroys_the_recurrence(inverse, regime):
    """Everywhere by ten times the limit of f32, at the worst by a hundred; and were no more claimed than bf16x3."""
    found = in_units(implementation_of(inverse, "one_bf16_pass"), regime, UNIT_ROUNDOFF["f32"])
    assert min(found[quantity] for quantity in T_ENTERS) > 10 * LIMIT, found
    assert max(found.values()) > 100 * LIMIT, found
    assert max(in_units(implementation_of(inverse, "one_bf16_pass"), regime, BF16X3).values()) > LIMIT


@where_it_matters
@each_inverse
def test_three_passes_are_within_the_limit_of_what_they_claim(inverse, regime):
    found = in_units(implementation_of(inverse, "bf16x3"), regime, BF16X3)
    assert found.keys() == set(QUANTITIES)
    assert max(found.values()) <= LIMIT, found


@each_inverse
def test_three_passes_are_not_f32(inverse):
    """The claim is needed: where the inverse is ill conditioned the whole rule is as coarse as its products."""
    found = in_units(implementation_of(inverse, "bf16x3"), "beta_near_two", UNIT_ROUNDOFF["f32"])
    assert min(found[quantity] for quantity in ("o", "final_state", "dk", "dv")) > LIMIT


@where_it_matters
@each_inverse
def test_in_full_it_is_f32(inverse, regime):
    found = in_units(implementation_of(inverse, "full"), regime, UNIT_ROUNDOFF["f32"])
    assert max(found.values()) <= LIMIT, found
