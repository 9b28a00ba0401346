"""The UT transform and its gradient, of every regime's chunks: against the oracle, and by both residuals."""

from functools import partial

import numpy as np
import pytest

from implementations.ut_inversion.ladder import ladder
from implementations.ut_inversion.powers import neumann, newton
from implementations.ut_inversion.products import one_bf16_pass
from oracles.conditioning import rms_response
from oracles.gated_delta_rule.ball import distance
from oracles.ut_inversion import ball
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF
from parity.regimes import REGIMES
from parity.shapes import RAGGED, WIDE, Shape
from parity.tolerances.limits import limits
from parity.truth import CERTIFIED_SHARE
from parity.unit import in_units as units_of_error
from parity.ut_inversion import BF16X3, CLAIMS, Claim, as_blocks, in_units, matrices, residuals, truth

# Worst of correct code: 1.6 times what a product of |I + S| and |T| costs.
RESIDUAL = 4.0

# Right on random normal keys, and on no others.
FROM_POWERS = {"neumann": neumann, "newton": newton}


@pytest.mark.gate
@pytest.mark.parametrize("shape", [RAGGED, WIDE], ids=lambda shape: f"chunk{shape.chunk_size}")
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("claim", CLAIMS)
def test_ut_inversion(claim: str, regime: str, shape: Shape) -> None:
    limit = limits().base[CLAIMS[claim].dtype].units
    for quantity, found in in_units(CLAIMS[claim], regime, shape).items():
        assert found.max() <= limit, f"{quantity} is off by {found.max():.3g} units in matrix {found.argmax()}"


@pytest.mark.gate
@pytest.mark.parametrize("key_size", [64, 128, 256])
@pytest.mark.parametrize("chunk_size", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("claim", CLAIMS)
def test_both_residuals(claim: str, chunk_size: int, key_size: int) -> None:
    worst = {regime: residuals(CLAIMS[claim], regime, of_one_chunk(chunk_size, key_size)) for regime in REGIMES}
    over = {regime: found for regime, found in worst.items() if not max(found.values()) <= RESIDUAL}
    assert over == {}


def of_one_chunk(chunk_size: int, key_size: int) -> Shape:
    return Shape("one_chunk", 1, chunk_size, 1, 2, key_size, key_size, chunk_size)


@pytest.mark.parametrize("regime", ["correlated_keys", "repeated_keys"])
@pytest.mark.parametrize("name", FROM_POWERS)
def test_what_is_made_of_powers_of_S_is_rejected(name: str, regime: str) -> None:
    claim = Claim(FROM_POWERS[name], "f32", UNIT_ROUNDOFF["f32"])
    assert not in_units(claim, regime, WIDE)["T"].max() <= 1e3 * limits().base["f32"].units
    assert not max(residuals(claim, regime, WIDE).values()) <= 1e3 * RESIDUAL


@pytest.mark.parametrize("regime", ["typical", "correlated_keys", "repeated_keys"])
def test_one_pass_of_bf16_is_rejected_even_where_less_is_claimed(regime: str) -> None:
    claim = Claim(partial(ladder, product=one_bf16_pass), "f32", BF16X3)
    assert in_units(claim, regime, WIDE)["T"].max() > limits().base["f32"].units
    assert max(residuals(claim, regime, WIDE).values()) > RESIDUAL


def test_one_wrong_row_is_seen_by_both_residuals() -> None:
    claim = Claim(lambda S: ladder(S).at[..., -1, :].multiply(1 + 1e-5), "f32", UNIT_ROUNDOFF["f32"])
    assert min(residuals(claim, "typical", WIDE).values()) > RESIDUAL


@pytest.mark.parametrize("regime", REGIMES)
def test_the_oracle_is_certified(regime: str) -> None:
    S, dT = (x.astype(np.float64)[:1] for x in matrices(regime, RAGGED, "f32"))
    want = truth(S, dT)
    kappa = rms_response(truth, (S, dT), name=f"ut inversion/{regime}", result=want)

    def balls(bits: int) -> tuple[ball.arb_mat, ...]:
        T = ball.inverse(S[0], bits=bits)
        return T, ball.adjoint(T, dT[0], bits=bits)

    for x, enclosure, moves in zip(want, balls(256), kappa, strict=True):
        bound = distance(x[0], enclosure)[None]
        found = units_of_error(
            *map(as_blocks, (bound, x, moves)), u_c=2.0**-24, u_out=2.0**-24, floor=SMALLEST_NORMAL["f32"]
        )
        assert found.max() <= CERTIFIED_SHARE["f32"] * limits().base["f32"].units
