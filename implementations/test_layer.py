"""The GatedDeltaNet layer: its definition in NumPy, pieces, dtypes, ranks and devices, and what it refuses."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from implementations.causal_conv import causal_conv
from implementations.chunked import chunked
from implementations.context_parallel.conftest import mesh_of
from implementations.context_parallel.halo_conv import halo_conv
from implementations.context_parallel.two_phase import two_phase
from implementations.layer import gated_delta_net, gated_rms_norm, l2_normalised
from implementations.layer_sizes import PUBLISHED, Sizes, parameters_like, sizes_of, states_like, zero_states
from implementations.sequential import sequential

U = 2.0**-53
B, T = 2, 11

TWO, THREE, FOUR = (Sizes(D=7, Hk=2, Hv=2 * group, K=4, V=3, W=4) for group in (2, 3, 4))
each_group = pytest.mark.parametrize("sizes", [TWO, THREE, FOUR], ids=["Hv = 2 Hk", "Hv = 3 Hk", "Hv = 4 Hk"])
RULE = partial(chunked, chunk_size=4)
# Without LLVM's optimisation, which takes longer than programs as small as these run.
jit = partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)
layer = jit(partial(gated_delta_net, rule=RULE))


def drawn(sizes, tokens=T, dtype=jnp.float64, rows=B, seed=0):
    """`(parameters, x, conv_state, recurrent_state)`, no two elements alike, in a model's usual magnitudes."""
    draw = np.random.default_rng(seed)
    scale = {"conv_q": 0.5, "conv_k": 0.5, "conv_v": 0.5, "A_log": 0.5, "dt_bias": 1.0, "norm": 0.3, "out": 0.3}
    parameters = {
        name: (name == "norm") + scale.get(name, sizes.D**-0.5) * draw.normal(size=like.shape)
        for name, like in parameters_like(sizes, dtype).items()
    }
    x = draw.normal(size=(rows, tokens, sizes.D))
    conv_state, recurrent_state = jax.tree.map(
        lambda like: draw.normal(size=like.shape), states_like(sizes, rows, dtype)
    )
    like = (parameters_like(sizes, dtype), jax.ShapeDtypeStruct(x.shape, dtype), *states_like(sizes, rows, dtype))
    return jax.tree.map(
        lambda value, like: jnp.asarray(value, like.dtype), (parameters, x, conv_state, recurrent_state), like
    )


def by_definition(parameters, x, conv_state, recurrent_state):
    """Token by token, in NumPy."""
    p, rows, h, W = parameters, dict(conv_state), recurrent_state, parameters["conv_q"].shape[-1]

    def silu(y):
        return y / (1 + np.exp(-y))

    y = np.zeros_like(x)
    for t in range(x.shape[1]):
        for n in "qkv":
            rows[n] = np.concatenate([rows[n], np.tensordot(x[:, [t]], p[n], 1)], axis=1)
        q, k, v = (silu(sum(p["conv_" + n][..., j] * rows[n][:, t + j] for j in range(W))) for n in "qkv")
        q, k = (y / np.sqrt(np.sum(y**2, -1, keepdims=True) + 1e-6) for y in (q, k))
        q, k = (np.repeat(y, v.shape[1] // y.shape[1], axis=1) for y in (q, k))
        g = -np.exp(p["A_log"]) * np.log1p(np.exp(x[:, t] @ p["a"] + p["dt_bias"]))
        h = h * np.exp(g)[..., None, None]
        write = (v - np.einsum("bhk,bhkv->bhv", k, h)) / (1 + np.exp(-(x[:, t] @ p["b"])))[..., None]
        h = h + k[..., :, None] * write[..., None, :]
        o = np.einsum("bhk,bhkv->bhv", q, h) / np.sqrt(q.shape[-1])
        o = p["norm"] * o / np.sqrt(np.mean(o**2, -1, keepdims=True) + 1e-6) * silu(np.tensordot(x[:, t], p["z"], 1))
        y[:, t] = np.tensordot(o, p["out"], 2)
    return y, {n: rows[n][:, x.shape[1] :] for n in "qkv"}, h


def assert_close(found, wanted, ulps=64, u=U):
    """To a few units of the largest element of each array."""
    found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(a, b, rtol=0, atol=ulps * u * np.max(np.abs(b), initial=0))


# What it computes


@each_group
@pytest.mark.usefixtures("x64")
def test_it_is_its_definition(sizes):
    inputs = drawn(sizes)
    assert_close(layer(*inputs), by_definition(*jax.tree.map(np.asarray, inputs)))


@pytest.mark.usefixtures("x64")
def test_any_rule_plugs_in():
    inputs = drawn(THREE)
    assert_close(jit(partial(gated_delta_net, rule=sequential))(*inputs), layer(*inputs))


@pytest.mark.parametrize("sizes", [Sizes(1, 1, 1, 1, 1, 1), Sizes(3, 1, 2, 2, 1, 1), Sizes(1, 2, 2, 1, 3, 2)], ids=str)
@pytest.mark.usefixtures("x64")
def test_sizes_of_one(sizes):
    inputs = drawn(sizes, tokens=3)
    assert_close(layer(*inputs), by_definition(*jax.tree.map(np.asarray, inputs)))


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [(TWO, sequential), (THREE, RULE), (FOUR, sequential)],
    ids=["Hv = 2 Hk", "Hv = 3 Hk, chunked", "Hv = 4 Hk"],
)
@pytest.mark.usefixtures("x64")
def test_gradients_are_those_of_the_definition_and_reach_everything(sizes, rule):
    """Of all outputs, by all parameters and both states: each finite and not 0, and together the slope of a line."""
    inputs = drawn(sizes)
    cotangents, direction = (jax.tree.map(np.asarray, drawn(sizes, seed=seed)) for seed in (1, 2))

    def loss(outputs):
        return sum(
            (c * y).sum() for c, y in zip(jax.tree.leaves(cotangents[1:]), jax.tree.leaves(outputs), strict=True)
        )

    gradients = jit(jax.grad(lambda inputs: loss(gated_delta_net(*inputs, rule=rule))))(inputs)
    for path, gradient in jax.tree.leaves_with_path(gradients):
        assert np.all(np.isfinite(gradient)), path
        assert np.all(gradient != 0), path

    # The definition is analytic, and an imaginary step has no differences to cancel.
    stepped = jax.tree.map(lambda x, d: np.asarray(x) + 1e-30j * d, inputs, direction)
    slope = np.imag(loss(by_definition(*stepped))) / 1e-30
    terms = [np.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (gradients, direction)), strict=True)]
    assert abs(sum(terms) - slope) < 64 * U * sum(map(abs, terms))


def test_norms_of_zeros_have_finite_gradients():
    """As of a token of zeros, before any other has written."""
    zeros, ones = jnp.zeros((1, 1, 2, 3)), jnp.ones((1, 1, 2, 3))
    assert np.all(np.isfinite(jax.grad(lambda x: jnp.sum(l2_normalised(x)))(zeros)))
    assert np.all(np.isfinite(jax.grad(lambda o: jnp.sum(gated_rms_norm(o, ones, jnp.ones(3))))(zeros)))


# In pieces


@pytest.mark.parametrize(
    "pieces", [(1, 2, 3, 5), (5, 3, 2, 1), (2, 1, 1, 1, 5, 1), (1,) * 11], ids=lambda x: "+".join(map(str, x))
)
@pytest.mark.usefixtures("x64")
def test_pieces_of_any_length_are_the_whole(pieces):
    """Pieces that are shorter than the W - 1 tokens of the state too."""
    parameters, x, *states = drawn(THREE)
    wanted = layer(parameters, x, *states)
    outputs = []
    for piece in np.split(x, np.cumsum(pieces)[:-1], axis=1):
        y, *states = layer(parameters, jnp.asarray(piece), *states)
        outputs.append(y)
    assert_close((jnp.concatenate(outputs, axis=1), *states), wanted)


# Dtypes


def recorded(rule, calls):
    """The rule, which leaves its arguments in `calls`."""

    def call(*arguments, **keywords):
        calls.append((arguments, keywords))
        return rule(*arguments, **keywords)

    return call


@pytest.mark.parametrize(("dtype", "wide"), [("bfloat16", "float32"), ("float32", "float32"), ("float64", "float64")])
@pytest.mark.usefixtures("x64")
def test_activations_are_in_the_dtype_of_x_and_gates_and_state_in_the_wide_one(dtype, wide):
    calls, convolutions = [], []
    outputs = jax.eval_shape(
        partial(gated_delta_net, rule=recorded(RULE, calls), convolution=recorded(causal_conv, convolutions)),
        *drawn(TWO, dtype=jnp.dtype(dtype)),
    )
    y, conv_state, recurrent_state = outputs
    assert {y.dtype, *(x.dtype for x in conv_state.values())} == {jnp.dtype(dtype)}
    assert recurrent_state.dtype == wide
    assert [x.dtype for x in calls[0][0]] == [*[dtype] * 3, *[wide] * 3]
    assert [x.dtype for call in convolutions for x in call[0]] == [wide] * 9


def in_bf16():
    """Inputs of a model in bf16, D and T large enough for statistics, and the same in f64."""
    inputs = drawn(Sizes(D=48, Hk=2, Hv=4, K=16, V=16, W=4), tokens=64, dtype=jnp.bfloat16)
    return inputs, jax.tree.map(lambda x: np.asarray(x, np.float64), inputs)


def bf16(x):
    return np.asarray(jnp.asarray(np.asarray(x, np.float32), jnp.bfloat16), np.float64)


def rule_inputs(inputs):
    """What the layer gives the rule, compiled."""
    calls = []

    @jit
    def program(*inputs):
        gated_delta_net(*inputs, rule=recorded(sequential, calls))
        return calls[0][0]

    return program(*inputs)


def test_gates_of_a_model_in_bf16_are_not_rounded_to_bf16():
    """Nor are the logits: to f32 accuracy they are what f64 makes of the same weights."""
    inputs, (p, x, *_) = in_bf16()
    g, beta = rule_inputs(inputs)[3:5]
    wanted_g = -np.exp(p["A_log"]) * np.log1p(np.exp(x @ p["a"] + p["dt_bias"]))
    wanted_beta = 1 / (1 + np.exp(-(x @ p["b"])))
    for found, wanted in ((g, wanted_g), (beta, wanted_beta)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        assert np.mean(bf16(found) == found) < 0.01
        # Had the logits been rounded, the gates would be off by this much.
    rounded_g = -np.exp(p["A_log"]) * np.log1p(np.exp(bf16(x @ p["a"]) + p["dt_bias"]))
    assert np.max(np.abs(rounded_g / wanted_g - 1)) > 1e-3


def test_tokens_of_a_model_in_bf16_are_rounded_once_before_the_convolution_and_once_behind_it():
    """So that in f64, with these two, the rule gets the same, but for the few that lie between two numbers of bf16."""
    inputs, (p, x, conv_state, _) = in_bf16()

    def silu(y):
        return y / (1 + np.exp(-y))

    for name, found in zip("qkv", rule_inputs(inputs)[:3], strict=True):
        tokens = np.concatenate([conv_state[name], bf16(np.tensordot(x, p[name], 1))], axis=1)
        y = silu(sum(p["conv_" + name][..., j] * tokens[:, j : j + x.shape[1]] for j in range(4)))
        if name != "v":
            y = y / np.sqrt(np.sum(y**2, -1, keepdims=True) + 1e-6)
        wanted, found = bf16(y), np.asarray(found, np.float64)
        assert np.mean(found == wanted) > 0.99
        np.testing.assert_allclose(found, wanted, rtol=2**-7, atol=1e-6)


def test_the_output_of_a_model_in_bf16_is_rounded_once_behind_the_norm():
    inputs, (p, x, *_) = in_bf16()

    def rule(q, k, v, g, beta, recurrent_state):
        return v, recurrent_state  # o is then known

    y = jit(partial(gated_delta_net, rule=rule))(*inputs)[0]
    o, z = np.asarray(rule_inputs(inputs)[2], np.float64), bf16(np.tensordot(x, p["z"], 1))
    o = p["norm"] * o / np.sqrt(np.mean(o**2, -1, keepdims=True) + 1e-6) * z / (1 + np.exp(-z))
    wanted, found = bf16(np.tensordot(o, p["out"], 2)), np.asarray(y, np.float64)
    assert np.mean(found == wanted) > 0.98


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_every_product_is_in_f32_at_full_precision(dtype):
    """Backward too."""

    def loss(*inputs):
        return jnp.sum(gated_delta_net(*inputs, rule=sequential)[0].astype(jnp.float32))

    _, *products = str(jax.make_jaxpr(jax.grad(loss))(*drawn(TWO, dtype=dtype))).split("dot_general[")
    assert len(products) > 14
    for product in products:
        found = re.match(r".*?precision=\((.*?)\)\s+preferred_element_type=(\w+)", product, re.DOTALL)
        assert found.groups() == ("Precision.HIGHEST, Precision.HIGHEST", "float32")


# Over ranks and devices


@pytest.mark.usefixtures("x64")
def test_over_ranks_it_is_what_it_is_on_one():
    mesh, axes = mesh_of(a=2), ("a",)
    inputs = drawn(THREE, tokens=12)
    rule, convolution = (partial(f, mesh=mesh, axes=axes) for f in (partial(two_phase, chunk_size=4), halo_conv))
    found = jit(partial(gated_delta_net, rule=rule, convolution=convolution))(*inputs)
    assert_close(found, layer(*inputs))


@pytest.mark.usefixtures("x64")
def test_heads_may_lie_on_several_devices():
    """Of all that is computed the only thing to cross is a sum of outputs."""
    mesh = mesh_of(heads=2)
    parameters, x, conv_state, recurrent_state = drawn(THREE)
    axis = dict.fromkeys("qkvzab", 1) | dict.fromkeys(("conv_q", "conv_k", "conv_v", "A_log", "dt_bias", "out"), 0)

    def put(x, axis):
        spec = PartitionSpec(*[None] * axis, "heads") if axis is not None else PartitionSpec()
        return jax.device_put(x, NamedSharding(mesh, spec))

    placed = {name: put(parameter, axis.get(name)) for name, parameter in parameters.items()}
    states = jax.tree.map(lambda x: put(x, 2), conv_state), put(recurrent_state, 1)
    program = layer.lower(placed, put(x, None), *states).compile()
    collectives = [word for word in ("all-gather", "all-to-all", "collective-permute") if word in program.as_text()]
    assert collectives == []
    assert program.as_text().count(" all-reduce(") == 1
    wanted = layer(parameters, x, conv_state, recurrent_state)
    assert_close(program(placed, put(x, None), *states), wanted)


# Documents


def test_segment_ids_reach_the_rule_and_each_convolution_where_there_are_any():
    calls = []

    def rule(q, k, v, g, beta, recurrent_state, **keywords):
        calls.append(keywords)
        return v, recurrent_state

    def convolution(x, weight, initial_state, **keywords):
        calls.append(keywords)
        return x, initial_state

    run = partial(gated_delta_net, *drawn(TWO, dtype=jnp.float32), rule=rule, convolution=convolution)
    jax.eval_shape(run)
    assert calls == [{}] * 4
    ids = jnp.zeros((B, T), jnp.int32)
    calls.clear()
    jax.eval_shape(partial(run, segment_ids=ids))
    assert [list(keywords) for keywords in calls] == [["segment_ids"]] * 4
    assert all(keywords["segment_ids"] is ids for keywords in calls)


# Sizes


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes_have_shapes(name):
    sizes, tokens = PUBLISHED[name], 3
    x = jax.ShapeDtypeStruct((1, tokens, sizes.D), jnp.bfloat16)
    states = states_like(sizes, 1, jnp.bfloat16)
    parameters = parameters_like(sizes, jnp.bfloat16)
    assert jax.eval_shape(partial(gated_delta_net, rule=sequential), parameters, x, *states) == (x, *states)
    assert (sizes.Hk, sizes.K, sizes.V, sizes.W) == (16, 128, 128, 4)


def test_sizes_are_those_of_the_parameters():
    assert sizes_of(parameters_like(THREE, jnp.float32)) == THREE


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_before_the_first_token_states_are_zeros(dtype):
    states = zero_states(THREE, B, dtype)
    assert jax.eval_shape(lambda: states) == states_like(THREE, B, dtype)
    assert not any(np.any(state) for state in jax.tree.leaves(states))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Hv": 5}, r"Hv must be a multiple of Hk, .*; got Sizes\(D=7, Hk=2, Hv=5"),
        ({"W": 0}, r"sizes must be positive integers; got Sizes\(.*W=0\)"),
        ({"K": 2.0}, r"sizes must be positive integers; got Sizes\(.*K=2.0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Sizes(**{"D": 7, "Hk": 2, "Hv": 4, "K": 4, "V": 3, "W": 4} | change)


# What is refused


def zeros(*shape, dtype=jnp.float32):
    return jnp.zeros(shape, dtype)


REFUSED = {
    "a parameter is missing": (0, {"z": None}, r"parameters must have the names \['q'.*missing are \['z'\]"),
    "a parameter is unknown": (0, {"bias": zeros(3)}, r"missing are \[\], unknown are \['bias'\]"),
    "q has no heads": (0, {"q": zeros(7, 8)}, r"parameter 'q' must be \[D Hk K\]; got \(7, 8\)"),
    "heads do not divide": (0, {"v": zeros(7, 5, 3)}, r"Hv must be a multiple of Hk, .* Hv=5"),
    "k is not as q": (0, {"k": zeros(7, 2, 3)}, r"parameter 'k' must have shape \(7, 2, 4\); got \(7, 2, 3\)"),
    "taps differ": (0, {"conv_v": zeros(4, 3, 3)}, r"parameter 'conv_v' must have shape \(4, 3, 4\); got \(4, 3, 3\)"),
    "out is transposed": (0, {"out": zeros(7, 4, 3)}, r"'out' must have shape \(4, 3, 7\); got \(7, 4, 3\)"),
    "a weight is narrower": (
        0,
        {"z": zeros(7, 4, 3, dtype=jnp.bfloat16)},
        "with x in float32, parameter 'z' must be float32; got bfloat16: cast it",
    ),
    "A_log is narrow": (
        0,
        {"A_log": zeros(4, dtype=jnp.bfloat16)},
        "parameter 'A_log' must be float32 or wider; got bfloat16: cast it",
    ),
    "dt_bias is of integers": (0, {"dt_bias": zeros(4, dtype=int)}, "must be float32 or wider; got int32"),
    "x has no rows": (1, zeros(11, 7), r"x must be \[B, T, D = 7\], B and T at least 1; got \(11, 7\)"),
    "x is of another model": (1, zeros(2, 11, 8), r"x must be \[B, T, D = 7\].*; got \(2, 11, 8\)"),
    "x has no tokens": (1, zeros(2, 0, 7), r"B and T at least 1; got \(2, 0, 7\)"),
    "x is of integers": (1, zeros(2, 11, 7, dtype=int), "x must be one of .*float32.*; got int32"),
    "x is in f16": (1, zeros(2, 11, 7, dtype=jnp.float16), "x must be one of .*bfloat16.*; got float16"),
    "conv_state lacks v": (2, {"v": None}, r"conv_state must have the names \['q', 'k', 'v'\]; missing are \['v'\]"),
    "conv_state is longer": (2, {"k": zeros(2, 4, 2, 4)}, r"conv_state 'k' must have shape \(2, 3, 2, 4\); got \(2, 4"),
    "conv_state is wider": (
        2,
        {"q": zeros(2, 3, 2, 4, dtype=jnp.bfloat16)},
        "conv_state 'q' must be float32; got bfloat16: cast it",
    ),
    "rows differ": (3, zeros(1, 4, 4, 3), r"recurrent_state must have shape \(2, 4, 4, 3\); got \(1, 4, 4, 3\)"),
    "the state is narrow": (
        3,
        zeros(2, 4, 4, 3, dtype=jnp.bfloat16),
        "recurrent_state must be float32 or wider; got bfloat16: cast it",
    ),
    "there is no state": (3, None, r"recurrent_state must be an array of shape \(2, 4, 4, 3\); got NoneType"),
    "conv_state is a tuple": (2, (), "conv_state must be a mapping from names to arrays; got tuple"),
    "parameters are none": (0, None, "parameters must be a mapping from names to arrays; got NoneType"),
}


@pytest.mark.usefixtures("unchecked")
def test_a_rule_that_returns_something_else_is_refused():
    """As that of one token would, whose output would be that of every token."""
    with pytest.raises(ValueError, match=r"the rule must return o like v \(2, 11, 4, 3\).*it returned \(2, 1, 4, 3\)"):
        gated_delta_net(*drawn(TWO, dtype=jnp.float32), rule=lambda q, k, v, g, beta, state: (v[:, :1], state))


@pytest.mark.usefixtures("unchecked")
def test_where_each_rank_has_its_own_tokens_the_convolution_must_know():
    mesh = mesh_of(context=4)
    given = drawn(TWO, tokens=16, dtype=jnp.float32)

    def local(*inputs):
        return gated_delta_net(*inputs, rule=partial(two_phase, chunk_size=4, mesh=mesh, axes=("context",)))

    of_tokens, of_all = PartitionSpec(None, "context"), PartitionSpec()
    program = jax.shard_map(
        *(local,),
        mesh=mesh,
        in_specs=(of_all, of_tokens, of_all, of_all),
        out_specs=(of_tokens, of_all, of_all),
        check_vma=False,
    )
    with pytest.raises(ValueError, match=r"each rank has its own tokens.*use halo_conv, with mesh and axes bound"):
        jax.eval_shape(program, *given)


@pytest.mark.parametrize(("which", "change", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_together_is_refused(which, change, message):
    inputs = list(drawn(TWO, dtype=jnp.float32))
    if isinstance(change, dict):
        changed = inputs[which] | change
        inputs[which] = {name: x for name, x in changed.items() if x is not None}
    else:
        inputs[which] = change
    with pytest.raises(ValueError, match=message):
        gated_delta_net(*inputs, rule=RULE)


NO_IDS = [zeros(2, 11), zeros(2, 10, dtype=int), zeros(11, dtype=int), [[0] * 11] * 2]


@pytest.mark.parametrize("ids", NO_IDS, ids=["f32", "T", "B", "list"])
@pytest.mark.usefixtures("unchecked")
def test_segment_ids_are_integers_one_a_token(ids):
    with pytest.raises(ValueError, match=r"segment_ids must be an array of integers of shape \(2, 11\)"):
        gated_delta_net(*drawn(TWO, dtype=jnp.float32), rule=RULE, segment_ids=ids)
