"""An implementation is asked once, and what it did wrong costs what it cost and no more."""

import ctypes
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from implementations.chunked import chunked
from implementations.contract import FEATURES, Implementation
from oracles.gated_delta_rule import GRADIENTS, OUTPUTS, QUANTITIES
from parity.matrix import Case
from parity.meshes import MeshTooLarge
from parity.problem import Problem
from parity.run import run
from parity.shapes import SHORT, SINGLE, Shape
from parity.verdict import judge

F64, F32, BF16 = (Problem("typical", SHORT, dtype) for dtype in ("f64", "f32", "bf16"))


def kernel(call, **claims):
    return Implementation("kernel", call, **claims)


def forward_only(call, **claims):
    return kernel(call, supports=FEATURES - {"gradients"}, **claims)


def linear(q, k, v, g, beta, initial_state, *, scale, chunk_size):
    """Not the rule, but of its form, and with gradients that tell the inputs and the cotangents apart."""
    key = (jnp.sum(2 * q + 3 * k, axis=(2, 3)))[..., None, None]
    gate = (5 * g + 7 * beta)[..., None]
    return 11 * v + key.astype(v.dtype) + gate.astype(v.dtype), 13 * initial_state


def returns(function):
    """A call that returns `function(v, initial_state)`."""

    def call(q, k, v, g, beta, initial_state, *, scale, chunk_size):
        return function(v, initial_state)

    return call


def vjp_of_linear(q, k, v, g, beta, initial_state, do, dfinal_state, *, scale, chunk_size):
    per_token, per_gate = np.sum(do, axis=(2, 3))[..., None, None], np.sum(do, axis=3)
    return (
        2 * per_token + np.zeros(q.shape),
        3 * per_token + np.zeros(k.shape),
        11 * np.asarray(do),
        5 * per_gate,
        7 * per_gate,
        13 * np.asarray(dfinal_state),
    )


def assert_answers_linear(answer):
    """Every quantity, the tokens of all ranks joined; of the states the copy of each rank."""
    assert answer.failures == {}
    assert tuple(answer.pieces) == QUANTITIES
    x = F64.arguments
    key, gate = np.sum(2 * x["q"] + 3 * x["k"], axis=(2, 3))[..., None, None], (5 * x["g"] + 7 * x["beta"])[..., None]
    outputs = 11 * x["v"] + key + gate, 13 * x["initial_state"]
    gradients = vjp_of_linear(*x.values(), scale=None, chunk_size=16)
    for quantity, wanted in zip(QUANTITIES, (*outputs, *gradients), strict=True):
        pieces = answer.pieces[quantity]
        copies = pieces if quantity in ("final_state", "dh0") else [np.concatenate(pieces, axis=1)]
        for found in copies:
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


# What is asked


def test_one_program_gives_outputs_and_gradients():
    answer = run(kernel(linear), F64, 1)
    assert_answers_linear(answer)
    assert all(len(pieces) == 1 for pieces in answer.pieces.values())


@pytest.mark.parametrize(
    ("problem", "tokens", "default"),
    [(F64, "float64", "float64"), (F32, "float32", "float32"), (BF16, "bfloat16", "float32")],
)
def test_f64_runs_with_x64_and_the_others_without(problem, tokens, default):
    seen = []

    def call(q, k, v, g, beta, initial_state, *, scale, chunk_size):
        seen.append(({str(x.dtype) for x in (q, k, v)}, str(g.dtype), str(jnp.zeros(()).dtype)))
        return v, initial_state

    before = jax.config.jax_enable_x64
    answer = run(kernel(call), problem, 1)
    # called plainly, and again under jax.vjp
    assert seen == 2 * [({tokens}, "float64" if tokens == "float64" else "float32", default)]
    assert {str(answer.pieces[q][0].dtype) for q in ("o", "dq", "dk", "dv")} == {tokens}
    assert {str(answer.pieces[q][0].dtype) for q in ("final_state", "dg", "dbeta", "dh0")} == {default}
    assert jax.config.jax_enable_x64 == before


@pytest.mark.parametrize("problem", [F64, F32], ids=["f64", "f32"])
def test_a_callback_out_of_a_program_has_the_bits_of_its_run(problem):
    """Over ranks it runs in a thread of XLA's, and what it returns would be cut to f32 there."""

    def through_numpy(x):
        return jax.pure_callback(lambda x: 2.0 * np.asarray(x), x, x)

    def call(q, k, v, g, beta, initial_state, *, scale, chunk_size, mesh, axes):
        tokens = PartitionSpec(None, axes)
        return jax.shard_map(through_numpy, mesh=mesh, in_specs=tokens, out_specs=tokens)(v), initial_state

    before = jax.enable_x64.get_global()
    answer = run(forward_only(call, context_parallel=True), problem, 4)
    assert answer.failures == {}
    np.testing.assert_array_equal(np.concatenate(answer.pieces["o"], axis=1), 2.0 * problem.arguments["v"])
    assert jax.enable_x64.get_global() == before


@pytest.mark.parametrize("scale", [None, 0.5])
def test_scale_and_chunk_are_those_of_the_shape(scale):
    seen = []

    def call(q, k, v, g, beta, initial_state, **keywords):
        seen.append(keywords)
        return v, initial_state

    shape = Shape("tiny", B=1, T=4, Hk=1, Hv=1, K=2, V=2, chunk_size=3, scale=scale)
    run(kernel(call), Problem("typical", shape, "f32"), 1)
    assert seen == 2 * [{"scale": scale, "chunk_size": 3}]


def test_one_compilation_serves_all_regimes_and_seeds():
    traces = []

    def call(q, k, v, g, beta, initial_state, *, scale, chunk_size):
        traces.append(v.shape)
        return v, initial_state

    asked = kernel(call)
    first, again, other, reseeded = (
        run(asked, problem, 1)
        for problem in (F64, F64, Problem("zero_keys", SHORT, "f64"), Problem("typical", SHORT, "f64", seed=1))
    )
    assert len(traces) == 2  # plainly, and under jax.vjp
    assert np.array_equal(first.pieces["o"], again.pieces["o"])
    assert len({answer.pieces["o"][0].tobytes() for answer in (first, other, reseeded)}) == 3
    run(asked, Problem("typical", SINGLE, "f64"), 1)
    assert len(traces) == 4


# What is run: the call that users make, and the one that they differentiate


def test_the_plain_call_is_judged_and_not_only_the_forward_of_a_custom_vjp():
    """Inference kernels save no residuals, and are other code: `jax.vjp` never runs them."""

    @jax.custom_vjp
    def inner(*inputs):
        return 0 * inputs[2], 0 * inputs[5]

    def call(*inputs, scale, chunk_size):
        return inner(*inputs)

    def right(*inputs):
        return chunked(*inputs, scale=None, chunk_size=16)

    inner.defvjp(lambda *inputs: jax.vjp(right, *inputs), lambda pullback, cotangents: pullback(cotangents))
    verdict = judge(Case(kernel(call), F64, 1))
    assert {q for (_, q), finding in verdict.findings.items() if not finding.passes} == set(OUTPUTS)


def test_the_forward_of_a_custom_vjp_is_judged_too():
    @jax.custom_vjp
    def inner(*inputs):
        return right(*inputs)

    def call(*inputs, scale, chunk_size):
        return inner(*inputs)

    def right(*inputs):
        return chunked(*inputs, scale=None, chunk_size=16)

    def forward(*inputs):
        (o, final_state), pullback = jax.vjp(right, *inputs)
        return (1.01 * o, final_state), pullback

    inner.defvjp(forward, lambda pullback, cotangents: pullback(cotangents))
    verdict = judge(Case(kernel(call), F64, 1))
    assert {q for (_, q), finding in verdict.findings.items() if not finding.passes} == {"o"}


@pytest.mark.parametrize("raises", [pytest.skip, pytest.xfail, sys.exit])
def test_a_kernel_does_not_decide_whether_it_is_judged(raises):
    def call(*inputs, scale, chunk_size):
        raises("not here")

    answer = run(kernel(call), F64, 1)
    assert answer.pieces == {}
    assert set(answer.failures) == set(QUANTITIES)


# Ranks


def test_ranks_whose_copies_of_the_same_tokens_differ_are_seen():
    """Called replicated, and filled by each rank in its own tokens alone."""

    def call(*inputs, scale, chunk_size, mesh, axes):
        def local(v, h):
            rank, tokens = jax.lax.axis_index(axes), v.shape[1] // 4
            mine = jnp.arange(v.shape[1]) // tokens == rank
            return jnp.where(mine[:, None, None], v, 0), h

        whole = jax.sharding.PartitionSpec()
        over_ranks = jax.shard_map(local, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
        return over_ranks(inputs[2], inputs[5])

    answer = run(forward_only(call, context_parallel=True), F64, 4)
    assert answer.failures == {
        "o": "o: devices that hold the same tokens of it do not agree: 0 and 1, 0 and 2, 0 and 3"
    }
    assert tuple(answer.pieces) == ("final_state",)


def on_a_mesh(q, k, v, g, beta, initial_state, *, scale, chunk_size, mesh, axes):
    return linear(q, k, v, g, beta, initial_state, scale=scale, chunk_size=chunk_size)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_every_rank_is_read_on_its_own(ranks):
    answer = run(kernel(on_a_mesh, context_parallel=True), F64, ranks)
    for quantity, pieces in answer.pieces.items():
        assert len(pieces) == ranks
        assert {piece.shape[1] for piece in pieces} == {6 if quantity in ("final_state", "dh0") else 8 // ranks}
    assert_answers_linear(answer)


def test_a_mesh_its_axes_and_tokens_that_are_split_over_them_are_given():
    seen = []

    def call(q, k, v, g, beta, initial_state, *, scale, chunk_size, mesh, axes):
        seen.append((mesh.shape_tuple, axes))
        for x, tokens in ((v, 2), (g, 2), (initial_state, 6)):
            jax.debug.inspect_array_sharding(
                x, callback=lambda s, x=x, tokens=tokens: seen.append(s.shard_shape(x.shape)[1] == tokens)
            )
        return v, initial_state

    run(forward_only(call, context_parallel=True), F32, 4)
    assert seen == [((("context", 4),), ("context",)), True, True, True]


def test_a_mesh_larger_than_the_machine_says_what_is_missing():
    with pytest.raises(MeshTooLarge, match=r"16 ranks need 16 devices, and jax has 8 \(cpu\).*jax_num_cpu_devices"):
        run(
            kernel(on_a_mesh, context_parallel=True), Problem("typical", Shape("long", 1, 16, 1, 1, 2, 2, 4), "f32"), 16
        )


# Gradients that a record brings


@pytest.mark.parametrize("traceable", [True, False])
def test_a_vjp_of_the_records_own_is_asked(traceable):
    """NumPy inside, where it is not traced."""
    seen = []

    def call(q, k, v, g, beta, initial_state, *, scale, chunk_size):
        seen.append(isinstance(v, jax.core.Tracer))
        o, final_state = linear(q, k, v, g, beta, initial_state, scale=scale, chunk_size=chunk_size)
        return (o, final_state) if traceable else (np.asarray(o), np.asarray(final_state))

    def vjp(*arguments, scale, chunk_size):
        seen.append(isinstance(arguments[7], jax.core.Tracer))
        if not traceable:
            return vjp_of_linear(*arguments, scale=scale, chunk_size=chunk_size)
        like = jax.eval_shape(lambda *x: x, *arguments[:6])
        wrapped = partial(vjp_of_linear, scale=scale, chunk_size=chunk_size)
        return jax.pure_callback(lambda *x: wrapped(*map(np.asarray, x)), like, *arguments)

    assert_answers_linear(run(kernel(call, vjp=vjp, traceable=traceable), F64, 1))
    assert seen == [traceable, traceable]


def test_without_a_claim_of_gradients_none_are_asked_for():
    answer = run(forward_only(linear, traceable=False), F64, 1)
    assert tuple(answer.pieces) == OUTPUTS
    assert answer.failures == {}


@pytest.mark.parametrize(
    ("returned", "named"), [(slice(5), "tuple of 5"), (slice(0, 0), "tuple of 0"), (0, "ArrayImpl|array")]
)
def test_a_vjp_that_returns_something_else_costs_the_gradients_only(returned, named):
    def vjp(*arguments, scale, chunk_size):
        return tuple(arguments[:6])[returned]

    answer = run(kernel(linear, vjp=vjp, traceable=False), F64, 1)
    assert tuple(answer.pieces) == OUTPUTS
    assert tuple(answer.failures) == GRADIENTS
    for message in answer.failures.values():
        assert message.startswith("TypeError: vjp must return the tuple (dq, dk, dv, dg, dbeta, dh0); it returned a")
        assert any(name in message for name in named.split("|"))


def test_one_gradient_of_a_wrong_shape_costs_that_gradient():
    """dk a value head instead of a key head: what comes of forgetting to sum a group."""

    def vjp(q, k, v, g, beta, initial_state, do, dfinal_state, *, scale, chunk_size):
        return q, jnp.repeat(k, 3, axis=2), v, g, beta, initial_state

    answer = run(kernel(linear, vjp=vjp), F64, 1)
    assert answer.failures == {"dk": "dk must be float64[2, 8, 2, 16], like k; got float64[2, 8, 6, 16]"}
    assert set(answer.pieces) == set(QUANTITIES) - {"dk"}


# What is wrong


@pytest.mark.parametrize("name", ["v", "do"])
def test_arguments_that_are_written_to_cost_everything_and_are_named(name):
    def overwrite(x):
        address = np.asarray(x).__array_interface__["data"][0]
        np.ctypeslib.as_array((ctypes.c_double * x.size).from_address(address))[:] = 0.0

    def call(*inputs, scale, chunk_size):
        return linear(*inputs, scale=scale, chunk_size=chunk_size)

    def vjp(*arguments, scale, chunk_size):
        gradients = vjp_of_linear(*arguments, scale=scale, chunk_size=chunk_size)
        overwrite(arguments[{"v": 2, "do": 6}[name]])
        return gradients

    answer = run(kernel(call, vjp=vjp, traceable=False), F64, 1)
    assert answer.pieces == {}
    assert answer.failures.keys() == set(QUANTITIES)
    assert {f"written to its arguments: {name} must stay as given" in x for x in answer.failures.values()} == {True}


def test_arguments_that_are_given_away_are_named():
    def call(q, k, v, g, beta, initial_state, *, scale, chunk_size):
        return jax.jit(lambda x: 2 * x, donate_argnums=0)(v), initial_state

    answer = run(forward_only(call, traceable=False), F64, 1)
    assert {message.partition(": ")[2] for message in answer.failures.values()} == {"v must stay as given"}
    assert answer.failures.keys() == set(OUTPUTS)


def test_an_exception_without_a_text_of_its_own_is_a_failure_like_any_other():
    class Speechless(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def call(*inputs, **keywords):
        raise Speechless

    answer = run(forward_only(call), F64, 1)
    assert {"Speechless: <exception str() failed>" in x.splitlines()[0] for x in answer.failures.values()} == {True}


def test_a_wrong_form_is_why_there_are_no_gradients():
    answer = run(kernel(returns(lambda v, h: (v[:, :, :1], h))), F64, 1)
    assert {answer.failures[q].splitlines()[0] for q in GRADIENTS} == {
        "TypeError: o must be float64[2, 8, 6, 24], like v; got float64[2, 8, 1, 24]"
    }
    assert "final_state" in answer.pieces


def test_what_the_call_raises_is_the_failure_of_everything_with_its_own_traceback():
    def deep_inside_the_kernel(v):
        raise NotImplementedError("no kernel for a head of 24")

    def call(q, k, v, g, beta, initial_state, *, scale, chunk_size):
        return deep_inside_the_kernel(v), initial_state

    answer = run(kernel(call), F64, 1)
    assert answer.pieces == {}
    assert set(answer.failures) == set(QUANTITIES)
    for message in answer.failures.values():
        assert message.startswith("NotImplementedError: no kernel for a head of 24")
        assert "deep_inside_the_kernel" in message
        assert __file__ in message
        assert jax.__path__[0] not in message


def counted(q, k, v, g, beta, initial_state, *, scale, chunk_size):
    """jax cannot differentiate a while loop backwards."""
    _, o = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, 2 * c[1]), (0, v))
    return o, initial_state


def called_back(q, k, v, g, beta, initial_state, *, scale, chunk_size):
    return jax.pure_callback(lambda x: 8 * x, v, v), initial_state


@pytest.mark.parametrize(
    ("call", "why"), [(counted, "Reverse-mode differentiation"), (called_back, "do not support JVP")]
)
def test_what_jax_cannot_differentiate_still_has_its_outputs_measured(call, why):
    answer = run(kernel(call), F64, 1)
    assert tuple(answer.pieces) == OUTPUTS
    assert np.array_equal(answer.pieces["o"][0], 8 * F64.arguments["v"])
    assert tuple(answer.failures) == GRADIENTS
    assert all(why in message for message in answer.failures.values())


def test_a_vjp_that_raises_costs_the_gradients_only():
    def vjp(*arguments, scale, chunk_size):
        raise ZeroDivisionError("backward")

    answer = run(kernel(linear, vjp=vjp), F64, 1)
    assert tuple(answer.pieces) == OUTPUTS
    assert {message.splitlines()[0] for message in answer.failures.values()} == {"ZeroDivisionError: backward"}


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda v, h: [v, h, v], "it returned a list of 3"),
        (lambda v, h: (v,), "it returned a tuple of 1"),
        (lambda v, h: {"o": v, "final_state": h}, "it returned a dict"),
        (lambda v, h: None, "it returned a NoneType"),
        (lambda v, h: 1.0, "it returned a float"),
        (lambda v, h: "oh", "it returned a str"),
        (lambda v, h: (v, None), "element 1 is a NoneType"),
        (lambda v, h: (1.0, h), "element 0 is a float"),
        (lambda v, h: (v, (h, h)), "element 1 is a tuple"),
    ],
)
@pytest.mark.parametrize("traceable", [True, False])
def test_a_call_that_does_not_return_two_arrays_says_what_it_returned(function, named, traceable):
    answer = run(forward_only(returns(function), traceable=traceable), F64, 1)
    assert answer.pieces == {}
    assert tuple(answer.failures) == OUTPUTS
    for message in answer.failures.values():
        assert message.startswith("TypeError: call must return ")
        assert "(o, final_state)" in message
        assert named in message


def test_one_array_for_two_outputs_is_no_pair():
    """An array of length two unpacks; it is still no tuple."""
    answer = run(forward_only(returns(lambda v, h: jnp.zeros((2, 8, 6, 24)))), F64, 1)
    assert tuple(answer.failures) == OUTPUTS


def test_a_list_of_two_arrays_will_do():
    assert run(kernel(returns(lambda v, h: [v, h])), F64, 1).failures == {}


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda v, h: (v[:, :1], h), "float64[2, 1, 6, 24]"),  # broadcasts
        (lambda v, h: (v[..., :1], h), "float64[2, 8, 6, 1]"),
        (lambda v, h: (jnp.sum(v), h), "float64[]"),
        (lambda v, h: (jnp.swapaxes(v, 1, 2), h), "float64[2, 6, 8, 24]"),
        (lambda v, h: (v[None], h), "float64[1, 2, 8, 6, 24]"),
        (lambda v, h: (v.astype(jnp.float32), h), "float32[2, 8, 6, 24]"),
        (lambda v, h: (v.astype(jnp.complex128), h), "complex128[2, 8, 6, 24]"),
    ],
)
def test_an_output_of_a_wrong_shape_or_dtype_is_neither_cast_nor_broadcast(function, got):
    answer = run(forward_only(returns(function)), F64, 1)
    assert answer.failures == {"o": f"o must be float64[2, 8, 6, 24], like v; got {got}"}
    assert tuple(answer.pieces) == ("final_state",)


@pytest.mark.parametrize("function", [lambda v, h: (v[:, :1], h), lambda v, h: (v.astype(jnp.float32), h)])
def test_its_gradients_have_no_cotangent_to_fit(function):
    answer = run(kernel(returns(function)), F64, 1)
    assert set(answer.failures) == {"o", *GRADIENTS}
    assert answer.failures["o"].startswith("o must be float64[2, 8, 6, 24], like v; got")
    assert tuple(answer.pieces) == ("final_state",)


def test_a_state_with_its_axes_exchanged_is_seen():
    answer = run(forward_only(returns(lambda v, h: (v, jnp.swapaxes(h, 2, 3)))), F64, 1)
    assert answer.failures == {
        "final_state": "final_state must be float64[2, 6, 16, 24], like initial_state; got float64[2, 6, 24, 16]"
    }


def test_states_in_the_dtype_of_the_tokens_are_seen():
    """In a bf16 run the states stay in f32."""
    answer = run(forward_only(returns(lambda v, h: (v, h.astype(v.dtype)))), BF16, 1)
    assert list(answer.failures) == ["final_state"]
    assert "must be float32" in answer.failures["final_state"]
    assert "got bfloat16" in answer.failures["final_state"]


def test_float64_of_numpy_is_no_f32():
    answer = run(forward_only(returns(lambda v, h: (np.asarray(v, np.float64), h)), traceable=False), F32, 1)
    assert answer.failures == {"o": "o must be float32[2, 8, 6, 24], like v; got float64[2, 8, 6, 24]"}


def test_numbers_that_are_not_finite_are_measured_and_not_refused():
    answer = run(forward_only(returns(lambda v, h: (v / 0, h))), F64, 1)
    assert answer.failures == {}
    assert not np.isfinite(answer.pieces["o"][0]).any()
