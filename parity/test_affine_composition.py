"""A stretch of tokens as one affine map, and the exclusive prefix over ranks, against the oracle and its kappa."""

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from implementations.chunked import prepare
from implementations.context_parallel.affine import fold
from implementations.context_parallel.exchange import EXCHANGES
from implementations.context_parallel.reverse_fold import reverse_fold
from implementations.context_parallel.three_phase import local_pass
from oracles.affine_composition import ball, float64
from oracles.conditioning import rms_response
from oracles.gated_delta_rule.ball import distance
from oracles.stream import Stream
from parity.layouts import AXES
from parity.meshes import context_mesh
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF
from parity.problem import Problem
from parity.regimes import REGIMES
from parity.shapes import RAGGED
from parity.tolerances.limits import limits
from parity.unit import units

MAPS_OF_A_RANK = {function.__name__: function for function in (fold, local_pass, reverse_fold)}


def _check(got: tuple, want: tuple, kappa: tuple, names: tuple[str, ...], dtype: str) -> None:
    """Each leading index is a block of the unit."""
    u, floor = UNIT_ROUNDOFF[dtype], SMALLEST_NORMAL[dtype]
    for name, x, right, moves in zip(names, got, want, kappa, strict=True):
        flat = [np.asarray(y, dtype=np.float64).reshape(y.shape[0], 1, 1, -1) for y in (x, right, moves)]
        found = units(*flat, u_c=u, u_out=u, floor=floor)
        assert found.max() <= limits().base[dtype].units, (
            f"{name} is off by {found.max():.3g} units in block {found.argmax()}"
        )


@pytest.mark.gate
@pytest.mark.parametrize("name", MAPS_OF_A_RANK)
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_fold(dtype: str, regime: str, name: str) -> None:
    """The (A, B) of 82 tokens, a rank's share on a mesh of 4, for every row and head."""
    arguments, want, kappa = _tokens_of_a_rank(dtype, regime)
    with jax.enable_x64(dtype == "f64"):
        got = _map_of_a_rank(name)(*(jnp.asarray(x) for x in arguments))
    _check(tuple(x.reshape(-1, *x.shape[2:]) for x in got), want, kappa, ("A", "B"), dtype)


@cache
def _tokens_of_a_rank(dtype: str, regime: str) -> tuple[tuple[np.ndarray, ...], ...]:
    """k, v, g and beta; the oracle's (A, B) of them; and its kappa."""
    tokens = RAGGED.T // 4
    problem = Problem(regime, RAGGED, dtype)
    arguments = tuple(problem.arguments[name][:, :tokens] for name in ("k", "v", "g", "beta"))
    exact = tuple(x.astype(np.float64) for x in arguments)

    def oracle(k: np.ndarray, v: np.ndarray, g: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, ...]:
        group = RAGGED.Hv // RAGGED.Hk
        pairs = [
            float64.transition(k[row, :, head // group], v[row, :, head], g[row, :, head], beta[row, :, head])
            for row in range(RAGGED.B)
            for head in range(RAGGED.Hv)
        ]
        return tuple(np.stack(x) for x in zip(*pairs, strict=True))

    want = oracle(*exact)
    return arguments, want, rms_response(oracle, exact, name=f"fold/{regime}", result=want)


@cache
def _map_of_a_rank(name: str) -> Callable[..., tuple[jax.Array, jax.Array]]:
    @jax.jit
    def of_tokens(k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array) -> tuple[jax.Array, jax.Array]:
        return MAPS_OF_A_RANK[name](prepare(k, k, v, g, beta, scale=None, chunk_size=RAGGED.chunk_size))

    return of_tokens


@pytest.mark.gate
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", EXCHANGES)
def test_exchange(name: str, dtype: str, ranks: int) -> None:
    """The state entering each rank, the final state on each rank, and the gradients of both."""
    stream, K, V = Stream(f"exchange/{ranks}"), 6, 5
    numpy_dtype = np.float64 if dtype == "f64" else np.float32
    A, B, h0, dstates, dfinal = (
        x.astype(numpy_dtype)
        for x in (
            0.4 * stream.normal("A", ranks, K, K),
            stream.normal("B", ranks, K, V),
            stream.normal("h0", K, V),
            stream.normal("dstates", ranks, K, V),
            stream.normal("dfinal", K, V),
        )
    )

    def oracle(A: np.ndarray, B: np.ndarray, h0: np.ndarray, dstates: np.ndarray, dfinal: np.ndarray) -> tuple:
        return *float64.incoming_states(A, B, h0), *float64.adjoint(A, B, h0, dstates, dfinal)

    exact = tuple(x.astype(np.float64) for x in (A, B, h0, dstates, dfinal))
    want = oracle(*exact)
    kappa = rms_response(oracle, exact, name=f"exchange/{ranks}", result=want)
    per_rank, same = PartitionSpec(AXES), PartitionSpec()

    with jax.enable_x64(dtype == "f64"):

        @partial(
            jax.shard_map,
            mesh=context_mesh(ranks),
            in_specs=(per_rank, per_rank, same),
            out_specs=(per_rank, same),
            check_vma=False,
        )
        def states(A: jax.Array, B: jax.Array, h0: jax.Array) -> tuple[jax.Array, jax.Array]:
            entering, final = EXCHANGES[name]((A[None], B[None]), h0[None, None], AXES)  # one row, one head
            return entering[0], final[0, 0]

        outputs, pullback = jax.vjp(jax.jit(states), *(jnp.asarray(x) for x in (A, B, h0)))
        got = (*outputs, *pullback((jnp.asarray(dstates), jnp.asarray(dfinal))))
    _check(got, want, kappa, ("entering", "final", "dA", "dB", "dh0"), dtype)


def test_the_oracle_is_certified() -> None:
    stream = Stream("certified exchange")
    A, B, h0 = 0.4 * stream.normal("A", 8, 6, 6), stream.normal("B", 8, 6, 5), stream.normal("h0", 6, 5)
    states, final = float64.incoming_states(A, B, h0)
    balls, ball_of_final = ball.incoming_states(list(A), list(B), h0, bits=200)
    for x, enclosure in zip((*states, final), (*balls, ball_of_final), strict=True):
        assert np.sqrt(np.mean(distance(x, enclosure) ** 2)) <= 4 * 2.0**-53 * np.sqrt(np.mean(x**2))
