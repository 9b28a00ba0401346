"""A record that contradicts itself, or a function that cannot be called, is refused when the record is made."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.contract import FEATURES, Implementation, check_inputs


def call(q, k, v, g, beta, initial_state, *, scale, chunk_size):
    return v, initial_state


def call_on_a_mesh(q, k, v, g, beta, initial_state, *, scale, chunk_size, mesh, axes):
    return v, initial_state


def call_in_an_order(q, k, v, g, beta, initial_state, *, scale, chunk_size, mesh, axes, piece_order):
    return v, initial_state


def vjp(q, k, v, g, beta, initial_state, do, dfinal_state, *, scale, chunk_size):
    return q, k, v, g, beta, initial_state


def positional_only(q, k, v, g, beta, initial_state, /, *, scale, chunk_size):
    return v, initial_state


def any_keyword(q, k, v, g, beta, initial_state, **keywords):
    return v, initial_state


def any_argument(*arguments, **keywords):
    return arguments[2], arguments[5]


def other_names(a, b, c, d, e, f, scale=None, chunk_size=64):
    return c, f


def with_an_option(q, k, v, g, beta, initial_state, *, scale, chunk_size, block):
    return v, initial_state


class Kernel:
    def __call__(self, q, k, v, g, beta, initial_state, *, scale, chunk_size):
        return v, initial_state

    def method(self, q, k, v, g, beta, initial_state, *, scale, chunk_size):
        return v, initial_state


class WithoutSignature:
    """As builtins of C extensions: `inspect.signature` cannot tell what it takes."""

    __signature__ = "unknown"

    def __call__(self, *arguments, **keywords):
        return arguments[2], arguments[5]


# What passes


@pytest.mark.parametrize(
    "function",
    [
        call,
        positional_only,
        any_keyword,
        any_argument,
        other_names,
        functools.partial(with_an_option, block=8),
        jax.jit(call, static_argnames=("scale", "chunk_size")),
        Kernel(),
        Kernel().method,
        WithoutSignature(),
    ],
    ids=lambda function: getattr(function, "__name__", type(function).__name__),
)
def test_any_callable_that_can_be_called_so_is_accepted(function):
    assert Implementation("kernel", function).call is function


def test_the_defaults_claim_everything():
    record = Implementation("a_kernel_2", call)
    assert dict(record.arithmetic) == {"f64": "f64", "f32": "f32", "bf16": "f32"}
    assert record.supports == FEATURES
    assert not record.context_parallel
    assert record.vjp is None
    assert record.traceable


def test_a_record_may_claim_less():
    record = Implementation("kernel", call, arithmetic={"bf16": "bf16"}, supports={"ragged"}, traceable=False)
    assert record.supports == frozenset({"ragged"})
    assert isinstance(record.supports, frozenset)


def test_a_context_parallel_record_brings_mesh_and_axes():
    assert Implementation("kernel", call_on_a_mesh, context_parallel=True).context_parallel
    assert Implementation("kernel", any_keyword, context_parallel=True).context_parallel


def test_a_load_balanced_record_takes_the_order_of_pieces():
    def call(q, k, v, g, beta, initial_state, *, scale, chunk_size, mesh, axes, piece_order=None):
        return v, initial_state

    assert Implementation("kernel", call, context_parallel=True, load_balanced=True).load_balanced
    assert not Implementation("kernel", call, context_parallel=True).load_balanced
    with pytest.raises(TypeError, match=r"cannot be called as .*mesh, axes, piece_order"):
        Implementation("kernel", call_on_a_mesh, context_parallel=True, load_balanced=True)
    with pytest.raises(TypeError, match=r"cannot be called as .*mesh, axes\): missing a required .* 'piece_order'"):
        Implementation("kernel", call_in_an_order, context_parallel=True, load_balanced=True)
    with pytest.raises(ValueError, match="kernel: load_balanced is about the tokens of ranks; it needs context_par"):
        Implementation("kernel", any_keyword, load_balanced=True)


def test_a_packed_record_takes_segment_ids_and_does_without():
    def packed_call(q, k, v, g, beta, initial_state, *, scale, chunk_size, segment_ids=None):
        return v, initial_state

    def always_packed(q, k, v, g, beta, initial_state, *, scale, chunk_size, segment_ids):
        return v, initial_state

    assert Implementation("kernel", packed_call, packed=True).packed
    assert not Implementation("kernel", packed_call).packed
    with pytest.raises(TypeError, match=r"cannot be called as .*chunk_size, segment_ids"):
        Implementation("kernel", call, packed=True)
    with pytest.raises(TypeError, match=r"cannot be called as .*chunk_size\): missing a required .* 'segment_ids'"):
        Implementation("kernel", always_packed, packed=True)
    with pytest.raises(TypeError, match=r"vjp.*cannot be called as .*segment_ids"):
        Implementation("kernel", packed_call, packed=True, vjp=vjp)


def test_an_untraceable_record_with_a_vjp_has_gradients():
    assert "gradients" in Implementation("kernel", call, vjp=vjp, traceable=False).supports


def test_a_record_is_itself():
    one, other = Implementation("kernel", call), Implementation("kernel", call)
    assert one != other
    assert len({one, other, one}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "another"  # type: ignore[misc]


# What is refused


@pytest.mark.parametrize(
    "name", ["", "Kernel", "2_phase", "_private", "two-phase", "two phase", "kernel\n", "naïve", None]
)
@pytest.mark.usefixtures("unchecked")
def test_a_name_that_is_no_token_of_a_test_id_is_refused(name):
    with pytest.raises(ValueError, match=r"\[a-z\]\[a-z0-9_\]\*"):
        Implementation(name, call)


def test_a_name_that_would_select_ranks_is_refused():
    with pytest.raises(ValueError, match="selects ranks"):
        Implementation("my_" + "shard" + "ed_kernel", call)


@pytest.mark.parametrize("arithmetic", [{}, {"f16": "f16"}, {"f32": "tf32"}, {"f64": "f64", "float32": "f32"}])
@pytest.mark.usefixtures("unchecked")
def test_an_arithmetic_that_is_none_of_ours_is_refused(arithmetic):
    with pytest.raises(ValueError, match="arithmetic maps dtypes"):
        Implementation("kernel", call, arithmetic=arithmetic)


@pytest.mark.parametrize(
    ("supports", "named"), [({"ragged", "speed", "grace"}, "'grace', 'speed'"), ("ragged", "'a', 'd'")]
)
@pytest.mark.usefixtures("unchecked")
def test_an_unknown_feature_is_named(supports, named):
    with pytest.raises(ValueError, match=f"unknown features \\[{named}"):
        Implementation("kernel", call, supports=supports)


def test_gradients_need_jax_or_a_vjp():
    with pytest.raises(ValueError, match="cannot trace, jax cannot differentiate; bring vjp="):
        Implementation("kernel", call, traceable=False)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (with_an_option, "missing a required .*'block'"),
        (lambda q, k, v, g, beta, *, scale, chunk_size: None, "too many positional"),
        (lambda q, k, v, g, beta, initial_state, extra, *, scale, chunk_size: None, "missing a required .*'extra'"),
        (lambda q, k, v, g, beta, initial_state, *, chunk_size: None, "unexpected keyword .*'scale'"),
        (lambda q, k, v, g, beta, initial_state, *, scale: None, "unexpected keyword .*'chunk_size'"),
        (call_on_a_mesh, "missing a required .*'mesh'"),
        (lambda *, q, k, v, g, beta, initial_state, scale, chunk_size: None, "too many positional"),
    ],
)
def test_a_call_that_cannot_be_called_so_is_refused(function, why):
    with pytest.raises(
        TypeError, match=f"^kernel: call.* cannot be called as \\(q, k, v, g, beta, initial_state, .*{why}"
    ):
        Implementation("kernel", function)


@pytest.mark.parametrize("missing", ["mesh", "axes"])
def test_a_context_parallel_call_that_lacks_mesh_or_axes_is_refused(missing):
    functions = {
        "mesh": lambda q, k, v, g, beta, initial_state, *, scale, chunk_size, axes: None,
        "axes": lambda q, k, v, g, beta, initial_state, *, scale, chunk_size, mesh: None,
    }
    with pytest.raises(TypeError, match=f"kernel: call.*unexpected keyword .*'{missing}'"):
        Implementation("kernel", functions[missing], context_parallel=True)


@pytest.mark.parametrize(
    ("function", "on_a_mesh", "why"),
    [
        (call, False, "too many positional"),  # without the cotangents
        (lambda q, k, v, g, beta, initial_state, do, *, scale, chunk_size: None, False, "too many positional"),
        (lambda q, k, v, g, beta, initial_state, do, dfinal_state: None, False, "unexpected keyword .*'scale'"),
        (vjp, True, "unexpected keyword .*'mesh'"),
    ],
)
def test_a_vjp_that_cannot_be_called_so_is_refused(function, on_a_mesh, why):
    with pytest.raises(TypeError, match=f"^kernel: vjp.* cannot be called as .*do, dfinal_state, \\*, .*{why}"):
        Implementation("kernel", call_on_a_mesh if on_a_mesh else call, context_parallel=on_a_mesh, vjp=function)


@pytest.mark.usefixtures("unchecked")
def test_what_is_not_callable_is_refused():
    with pytest.raises(TypeError, match="kernel: call must be callable; got 'sequential'"):
        Implementation("kernel", "sequential")
    with pytest.raises(TypeError, match="kernel: vjp must be callable; got 3"):
        Implementation("kernel", call, vjp=3)


# The inputs of a call: B = 2, T = 5, Hk = 2, Hv = 4, K = 3, V = 6

FITTING = {
    "q": (2, 5, 2, 3),
    "k": (2, 5, 2, 3),
    "v": (2, 5, 4, 6),
    "g": (2, 5, 4),
    "beta": (2, 5, 4),
    "initial_state": (2, 4, 3, 6),
}


def check(chunk_size=16, **shapes):
    check_inputs(*(jnp.zeros(shape) for shape in (FITTING | shapes).values()), chunk_size=chunk_size)


@pytest.mark.parametrize("chunk_size", [1, 5, 64])
def test_inputs_that_fit_are_accepted(chunk_size):
    check(chunk_size)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("q", (2, 5, 3), "q must be \\[B, T, Hk, K\\]"),
        ("q", (2, 5, 2, 3, 1), "q must be \\[B, T, Hk, K\\]"),
        ("v", (2, 5, 24), "v \\[B, T, Hv, V\\]"),
        ("q", (2, 5, 3, 3), "Hv = 4, Hk = 3"),
        ("q", (2, 5, 8, 3), "Hv = 4, Hk = 8"),
        ("k", (2, 5, 2, 4), "k must have shape \\(2, 5, 2, 3\\); got \\(2, 5, 2, 4\\)"),
        ("k", (2, 5, 4, 3), "k must have shape"),
        ("k", (1, 5, 2, 3), "k must have shape"),
        ("v", (2, 6, 4, 6), "v must have shape \\(2, 5, 4, 6\\)"),
        ("v", (1, 5, 4, 6), "v must have shape"),
        ("g", (2, 5, 2), "g must have shape \\(2, 5, 4\\)"),
        ("g", (2, 5, 1), "g must have shape"),
        ("g", (2, 4, 5), "g must have shape"),
        ("beta", (2, 5, 4, 1), "beta must have shape \\(2, 5, 4\\)"),
        ("beta", (5, 4), "beta must have shape"),
        ("initial_state", (2, 4, 6, 3), "initial_state must have shape \\(2, 4, 3, 6\\)"),  # V x K
        ("initial_state", (2, 2, 3, 6), "initial_state must have shape"),
        ("initial_state", (4, 3, 6), "initial_state must have shape"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_shape_that_does_not_fit_is_refused(name, shape, message):
    with pytest.raises(ValueError, match=message):
        check(**{name: shape})


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("name", ["q", "v"])
@pytest.mark.usefixtures("unchecked")
def test_an_empty_axis_is_refused(name, axis):
    shape = tuple(0 if i == axis else size for i, size in enumerate(FITTING[name]))
    with pytest.raises(ValueError, match="every axis needs at least one element"):
        check(**{name: shape})


@pytest.mark.parametrize("chunk_size", [0, -1, 16.0, "16", None, True])
@pytest.mark.usefixtures("unchecked")
def test_a_chunk_size_that_is_no_positive_integer_is_refused(chunk_size):
    with pytest.raises(ValueError, match="chunk_size must be a positive integer"):
        check(chunk_size)


@pytest.mark.usefixtures("unchecked")
def test_a_chunk_size_may_be_an_integer_of_numpy(inputs):
    check_inputs(*inputs(), chunk_size=np.int64(16))


@pytest.mark.parametrize("dtype", ["int32", "float8_e4m3fn"])
@pytest.mark.usefixtures("unchecked")
def test_integers_and_eight_bits_are_refused(inputs, dtype):
    q, *rest = inputs()
    with pytest.raises(
        ValueError, match=rf"every input must be floating point, of 16 bits or more; got .*'q': '{dtype}'"
    ):
        check_inputs(q.astype(dtype), *rest, chunk_size=16)


@pytest.mark.usefixtures("unchecked")
def test_an_initial_state_of_none_is_refused(inputs):
    *rest, _ = inputs()
    with pytest.raises(ValueError, match=r"initial_state must have shape .*; got None"):
        check_inputs(*rest, None, chunk_size=16)


# Stages


def test_stages_are_called_as_the_call_is():
    def stages(q, k, v, g, beta, initial_state, *, scale, chunk_size):
        return {}

    assert Implementation("kernel", call, stages=stages).stages is stages
    with pytest.raises(TypeError, match=r"^kernel: stages.* cannot be called as .*chunk_size, mesh, axes"):
        Implementation("kernel", call_on_a_mesh, context_parallel=True, stages=stages)


def test_an_implementation_need_not_expose_its_stages():
    assert Implementation("kernel", call).stages is None
