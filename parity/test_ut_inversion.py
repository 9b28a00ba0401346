"""The UT transform and its gradient, of every regime's chunks, against the oracle and its kappa."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.ut_inversion.substitution import substitution
from oracles.conditioning import rms_response
from oracles.gated_delta_rule.ball import distance
from oracles.stream import Stream
from oracles.ut_inversion import ball, float64
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF, round_to
from parity.problem import Problem
from parity.regimes import REGIMES
from parity.shapes import RAGGED, WIDE, Shape
from parity.tolerances.limits import limits
from parity.truth import CERTIFIED_SHARE
from parity.unit import in_units, units

INVERSES = {"substitution": substitution}


def _matrices(regime: str, shape: Shape, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """S of the first chunk of every row and head, `[N, C, C]`, and a cotangent, both rounded to `dtype`."""
    values = {name: x[:, : shape.chunk_size] for name, x in Problem(regime, shape, "f64").arguments.items()}
    k = np.moveaxis(np.repeat(values["k"], shape.Hv // shape.Hk, axis=2), 2, 1)
    g, beta = np.moveaxis(values["g"], 2, 1), np.moveaxis(values["beta"], 2, 1)
    S = float64.ut_matrix(k, g, beta).reshape(-1, shape.chunk_size, shape.chunk_size)
    dT = Stream(f"ut inversion/{regime}").normal("dT", *S.shape)
    return round_to(S, dtype), round_to(dT, dtype)


def _oracle(S: np.ndarray, dT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    T = float64.inverse(S)
    return T, float64.adjoint(T, dT)


def _blocks(x: np.ndarray) -> np.ndarray:
    """A matrix is one block of the unit: `[N, 1, 1, C C]`."""
    return x.reshape(len(x), 1, 1, -1)


@pytest.mark.gate
@pytest.mark.parametrize("shape", [RAGGED, WIDE], ids=lambda shape: f"chunk{shape.chunk_size}")
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", INVERSES)
def test_ut_inversion(name: str, dtype: str, regime: str, shape: Shape) -> None:
    S, dT = _matrices(regime, shape, dtype)
    exact = (S.astype(np.float64), dT.astype(np.float64))
    want = _oracle(*exact)
    kappa = rms_response(_oracle, exact, name=f"ut inversion/{regime}", result=want)
    with jax.enable_x64(dtype == "f64"):
        T, pullback = jax.vjp(jax.jit(INVERSES[name]), jnp.asarray(S))
        got = (np.asarray(T), np.tril(np.asarray(pullback(jnp.asarray(dT))[0]), -1))

    u, floor = UNIT_ROUNDOFF[dtype], SMALLEST_NORMAL[dtype]
    for quantity, x, right, moves in zip(("T", "dS"), got, want, kappa, strict=True):
        found = units(_blocks(x.astype(np.float64)), _blocks(right), _blocks(moves), u_c=u, u_out=u, floor=floor)
        assert found.max() <= limits().base[dtype].units, (
            f"{quantity} is off by {found.max():.3g} units in matrix {found.argmax()}"
        )


@pytest.mark.parametrize("regime", REGIMES)
def test_the_oracle_is_certified(regime: str) -> None:
    S, dT = (x.astype(np.float64)[:1] for x in _matrices(regime, RAGGED, "f32"))
    want = _oracle(S, dT)
    kappa = rms_response(_oracle, (S, dT), name=f"ut inversion/{regime}", result=want)

    def balls(bits: int) -> tuple[ball.arb_mat, ...]:
        T = ball.inverse(S[0], bits=bits)
        return T, ball.adjoint(T, dT[0], bits=bits)

    for x, enclosure, moves in zip(want, balls(256), kappa, strict=True):
        bound = distance(x[0], enclosure)[None]
        found = in_units(
            _blocks(bound), _blocks(x), _blocks(moves), u_c=2.0**-24, u_out=2.0**-24, floor=SMALLEST_NORMAL["f32"]
        )
        assert found.max() <= CERTIFIED_SHARE["f32"] * limits().base["f32"].units
