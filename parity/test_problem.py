"""Every regime keeps its promise in every shape, and a problem is the same bits wherever it is made."""

import hashlib
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest

from implementations.contract import Dtype
from parity.precision import DTYPES, NUMPY, dtype_of
from parity.problem import Problem
from parity.regimes import EXACT, REGIMES
from parity.shapes import ALIGNED, RAGGED, SHAPES, SHORT, SINGLE, WIDE, Shape

LONG = (RAGGED, ALIGNED, WIDE)

each_regime = pytest.mark.parametrize("regime", REGIMES)
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
each_long_shape = pytest.mark.parametrize("shape", LONG, ids=lambda shape: shape.name)


@lru_cache(maxsize=64)
def arguments(regime: str, shape: Shape, dtype: Dtype = "f64", seed: int = 0) -> dict[str, np.ndarray]:
    return Problem(regime, shape, dtype, seed).arguments


def norms(x):
    return np.linalg.norm(x, axis=-1)


def cosines(k):
    """Between all pairs of keys of a row and head, `[B, Hk, T, T]`."""
    unit = k / norms(k)[..., None]
    return np.einsum("bthk,bshk->bhts", unit, unit)


def longest_run(flags):
    """The longest run of True in a sequence."""
    lengths, length = [0], 0
    for flag in flags:
        length = length + 1 if flag else 0
        lengths.append(length)
    return max(lengths)


# What all promise


@each_regime
@each_shape
def test_every_argument_is_finite_and_has_its_shape(regime, shape):
    x = arguments(regime, shape)
    assert {name: array.shape for name, array in x.items()} == {
        "q": (shape.B, shape.T, shape.Hk, shape.K),
        "k": (shape.B, shape.T, shape.Hk, shape.K),
        "v": (shape.B, shape.T, shape.Hv, shape.V),
        "g": (shape.B, shape.T, shape.Hv),
        "beta": (shape.B, shape.T, shape.Hv),
        "initial_state": (shape.B, shape.Hv, shape.K, shape.V),
        "do": (shape.B, shape.T, shape.Hv, shape.V),
        "dfinal_state": (shape.B, shape.Hv, shape.K, shape.V),
    }
    assert all(array.dtype == np.float64 and np.isfinite(array).all() for array in x.values())


@each_regime
@each_shape
def test_a_decay_never_grows_and_keys_never_exceed_one(regime, shape):
    x = arguments(regime, shape)
    assert np.all(x["g"] <= 0)
    assert np.all(x["beta"] >= 0)
    for name in ("q", "k"):
        assert norms(x[name]).max() <= 1 + 1e-15


@each_regime
@each_shape
def test_every_row_and_head_has_a_state_and_cotangents_of_its_own(regime, shape):
    """With h0 = 0, or without a cotangent for one output, whole classes of faults cannot be seen."""
    x = arguments(regime, shape)
    for name in ("initial_state", "dfinal_state", "do", "v"):
        array = np.moveaxis(x[name], 1, 2) if name in ("do", "v") else x[name]
        heads = array.reshape(shape.B * shape.Hv, -1)
        assert np.all(norms(heads) > 1), name
        assert len({head.tobytes() for head in heads}) == len(heads), name


@pytest.mark.parametrize("regime", [name for name in REGIMES if name != "orthogonal_write"])
@pytest.mark.parametrize("shape", [*LONG, SHORT], ids=lambda shape: shape.name)
def test_gates_differ_by_head_and_by_row(regime, shape):
    g = np.moveaxis(arguments(regime, shape)["g"], 1, 2).reshape(shape.B * shape.Hv, shape.T)
    assert len({head.tobytes() for head in g}) == shape.B * shape.Hv


@each_regime
def test_rows_and_key_heads_have_keys_and_queries_of_their_own(regime):
    x = arguments(regime, RAGGED)
    for name in ("q", "k"):
        heads = np.moveaxis(x[name], 1, 2).reshape(RAGGED.B * RAGGED.Hk, -1)
        assert len({head.tobytes() for head in heads}) == len(heads)
    assert not np.array_equal(x["q"], x["k"])


# What each promises


def test_typical_memory_runs_from_all_ranks_to_one_token():
    """`g = -A softplus(a + 1)` with A from 1/64 to 16, and softplus(a + 1) of a normal a has the mean 1.39."""
    A = -arguments("typical", RAGGED)["g"].mean(axis=(0, 1)) / 1.39
    np.testing.assert_allclose(A, [2.0**-6, 2.0**-4, 2.0**-2, 1, 4, 16], rtol=0.1)
    for shape in (ALIGNED, WIDE):
        A = -arguments("typical", shape)["g"].mean(axis=(0, 1)) / 1.39
        np.testing.assert_allclose(A, [2.0**-6, 16], rtol=0.1)


@each_shape
def test_typical_keys_are_normalised_and_lean_to_one_side(shape):
    """After SiLU no element is below -0.28, and the L2 norm makes that -0.28 over the norm before it."""
    x = arguments("typical", shape)
    for name in ("q", "k"):
        assert np.all(np.abs(norms(x[name]) - 1) < 1e-4)
        assert np.all(norms(x[name]) < 1)  # the epsilon under the root
        assert x[name].min() < 0 < -x[name].min() < x[name].max()
    assert np.all((x["beta"] > 0) & (x["beta"] < 1))


@each_long_shape
def test_long_memory_is_long(shape):
    x = arguments("long_memory", shape)
    g, strong = x["g"], x["g"] == -30
    assert np.count_nonzero(strong, axis=(1, 2)).tolist() == [1] * shape.B
    sums = -np.where(strong, 0, g).sum(axis=1)
    assert sums.max() <= 1
    slopes = sums.mean(axis=0)
    assert np.all(np.diff(slopes) > 0)  # a slope for each head
    assert slopes[-1] > 0.4
    assert np.count_nonzero(g == 0) > 0.05 * g.size
    assert np.all((x["beta"] >= 0) & (x["beta"] <= 1))
    assert np.any(x["beta"] == 0)
    assert np.any(x["beta"] == 1)
    assert cosines(x["k"]).min() > 0.4


def test_long_memory_decays_another_head_in_another_row():
    _, _, heads = np.nonzero(arguments("long_memory", RAGGED)["g"] == -30)
    assert heads.tolist() == [0, 1]


@pytest.mark.parametrize("shape", [*LONG, SHORT], ids=lambda shape: shape.name)
def test_mixed_gates_are_zero_or_minus_thirty(shape):
    g = arguments("mixed_gates", shape)["g"]
    assert set(np.unique(g)) == {-30.0, 0.0}
    for head in range(shape.Hv):
        for row in range(shape.B):
            (strong,) = np.nonzero(g[row, :, head])
            assert set(np.diff(strong)) <= {2 + head}
            assert len(strong) >= 1


@each_shape
def test_strong_decay_is_strong_everywhere(shape):
    g = arguments("strong_decay", shape)["g"]
    assert g.max() <= -1.5
    assert g.min() >= -20
    if shape in LONG:
        assert g.max() > -1.6
        assert g.min() < -19.9


@each_shape
def test_correlated_keys_have_a_cosine_near_095(shape):
    x = arguments("correlated_keys", shape)
    np.testing.assert_allclose(norms(x["k"]), 1, rtol=1e-15)
    if shape.T > 1:
        off_diagonal = cosines(x["k"])[..., ~np.eye(shape.T, dtype=bool)]
        assert abs(off_diagonal.mean() - 0.95) < 0.01
        assert off_diagonal.min() > 0.85
        assert off_diagonal.max() < 1
    assert np.all((x["beta"] >= 0.8) & (x["beta"] <= 1))
    assert np.all(x["g"] >= -0.02)


@each_shape
def test_repeated_keys_are_one_key(shape):
    x = arguments("repeated_keys", shape)
    assert np.array_equal(x["k"], np.broadcast_to(x["k"][:, :1], x["k"].shape))
    assert np.all(x["beta"] == 1)
    assert np.all((x["g"] >= -0.001) & (x["g"] < 0))


@each_shape
def test_beta_near_two_is_above_one_and_below_two(shape):
    beta = arguments("beta_near_two", shape)["beta"]
    assert beta.min() > 1
    assert beta.max() < 2
    if shape in LONG:
        assert beta.min() < 1.01
        assert beta.max() > 1.99


@each_shape
def test_orthogonal_write_is_exact(shape):
    x = arguments("orthogonal_write", shape)
    for name in ("q", "k"):
        assert set(np.unique(x[name])) == {0.0, 1.0}
        assert np.all(x[name].sum(axis=-1) == 1)
    for name in ("v", "initial_state", "do", "dfinal_state"):
        assert set(np.unique(x[name])) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    assert np.all(x["g"] == 0)
    assert np.all(x["beta"] == 1)


@each_long_shape
def test_orthogonal_write_overwrites(shape):
    """A key that comes again must replace what it wrote, inside a chunk and in a later one."""
    written = arguments("orthogonal_write", shape)["k"].argmax(axis=-1)[0, :, 0]
    assert len(set(written)) > shape.K // 2
    assert len(set(written[: shape.chunk_size])) < shape.chunk_size
    assert set(written[: shape.chunk_size]) & set(written[shape.chunk_size :])


@each_long_shape
def test_tiny_keys_have_norms_from_a_tenth_to_one_or_none(shape):
    """Raw norms 2^-13 to 2^-7, which the epsilon keeps from becoming the unit norm that most code takes for granted."""
    x = arguments("tiny_keys", shape)
    possible = [2.0**e / np.sqrt(4.0**e + 1e-6) for e in range(-13, -6)]
    for name in ("q", "k"):
        found = norms(x[name])
        zero = np.all(x[name] == 0, axis=-1)
        assert 0.02 < zero.mean() < 0.08
        assert found[~zero].min() > 0.1
        nearest = np.abs(found[~zero][:, None] - possible)
        assert nearest.min(axis=1).max() < 1e-12
        assert set(nearest.argmin(axis=1)) == set(range(7))


@each_long_shape
def test_zero_keys_come_singly_and_in_runs_longer_than_a_chunk(shape):
    x = arguments("zero_keys", shape)
    for name in ("q", "k"):
        zero = np.all(x[name] == 0, axis=-1)
        assert 0.4 < zero.mean() < 0.6
        assert np.array_equal(zero, np.any(x[name] == 0, axis=-1))
        runs = [longest_run(zero[row, :, head]) for row in range(shape.B) for head in range(shape.Hk)]
        assert max(runs) > shape.chunk_size
        assert np.any(zero[:, 1:-1] & ~zero[:, :-2] & ~zero[:, 2:])


def test_the_exact_regimes_are_exact_where_the_scale_is():
    assert set(REGIMES) >= EXACT
    exact = {shape.name for shape in SHAPES.values() if Problem("orthogonal_write", shape, "f32").is_exact}
    assert exact == {"ragged", "aligned", "short", "single"}  # 128 ** -0.5 is no power of two
    assert not Problem("typical", RAGGED, "f64").is_exact


# The same everywhere

# SHA-256 of the bytes of all arguments, in the order q k v g beta initial_state do dfinal_state, little endian.
PINNED = {
    "typical": "df14e3cf74008aa3a46b6ef6147313ddf3f7413c2ad6012aebc871c27145afe5",
    "long_memory": "8db45d32402d62d9c402d38a4f2239a58e69539652c18692d36c9d1ae3d88b36",
    "mixed_gates": "e6548e14dd470766f7b0459251096619ddfa8b67c29c1cdc890db3775253e53e",
    "strong_decay": "7e185bbbf6e97c5caf791bd1b2d542945da982e962031c2b9ea246b8c4f9a703",
    "correlated_keys": "11886f597cefb0178adaf86147066dc92c0c3d3907fd75fe94ad84e2ce38663d",
    "repeated_keys": "c166a366bf2f51b0e8bae6030bc9ba082a891c7b27a873c3ffe80256b81b3457",
    "beta_near_two": "e74f97c2d21446f5975b54067f31b1540d3cdd379fb92c09e149cb82c78a5642",
    "orthogonal_write": "c64629099d714f62aa8061cf4f9af5bf118f4cf1a6ebf276216a3171673acd22",
    "tiny_keys": "7183bbed8980beede8152da59406b09aa30df1102082cf09cca14b831ec6c155",
    "zero_keys": "1375a1b96dfcc4991aab8c1f9ee1bcac494e0f4a8aefacd01fd92bc544e3b601",
}


def digest(x: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(array.astype("<f8").tobytes() for array in x.values())).hexdigest()


@each_regime
def test_a_problem_is_the_same_on_every_platform(regime):
    """A changed digest is a changed problem: every measured limit and every recorded accuracy was of another one."""
    assert digest(arguments(regime, RAGGED)) == PINNED[regime]


def test_every_regime_is_pinned():
    assert PINNED.keys() == REGIMES.keys()
    assert len(set(PINNED.values())) == len(PINNED)


@each_regime
def test_another_seed_is_another_problem(regime):
    zero, one, two = (arguments(regime, SHORT, "f64", seed) for seed in (0, 1, 2))
    for name in ("v", "initial_state", "do", "dfinal_state", "q"):
        assert len({x[name].tobytes() for x in (zero, one, two)}) == 3
    fixed = {"mixed_gates": {"g"}, "repeated_keys": {"beta"}, "orthogonal_write": {"g", "beta"}}.get(regime, set())
    for name in {"k", "g", "beta"} - fixed:
        assert len({x[name].tobytes() for x in (zero, one, two)}) == 3, name


def test_names_tell_problems_apart():
    problems = [Problem(r, s, "f64", seed) for r in REGIMES for s in SHAPES.values() for seed in (0, 1)]
    assert len({p.name for p in problems}) == len(problems)
    assert Problem("typical", RAGGED, "f64").name == Problem("typical", RAGGED, "bf16").name


# Rounding


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regime", ["typical", "tiny_keys"])
def test_arguments_are_the_float64_values_rounded_once(regime, dtype):
    """To nearest even, by rational arithmetic: what every oracle then sees is what the implementation sees."""
    precise, rounded = arguments(regime, SHORT), arguments(regime, SHORT, dtype)
    bits = {"f64": 53, "f32": 24, "bf16": 8}
    for name, x in precise.items():
        kind = dtype_of(name, dtype)
        assert rounded[name].dtype == NUMPY[kind]
        sample = x.ravel()[:: max(1, x.size // 200)]
        wanted = [nearest_even(value, bits[kind]) for value in sample]
        assert rounded[name].astype(np.float64).ravel()[:: max(1, x.size // 200)].tolist() == wanted


def nearest_even(x: float, bits: int) -> float:
    quantum = Fraction(2) ** (int(np.frexp(x)[1]) - bits)
    return float(round(Fraction(x) / quantum) * quantum)


def test_gates_and_states_stay_in_f32_where_tokens_are_bf16():
    x = arguments("typical", SINGLE, "bf16")
    assert {name for name, array in x.items() if array.dtype == NUMPY["bf16"]} == {"q", "k", "v", "do"}
    assert {name for name, array in x.items() if array.dtype == np.float32} == {
        "g",
        "beta",
        "initial_state",
        "dfinal_state",
    }
