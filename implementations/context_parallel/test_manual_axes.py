"""Inside a `shard_map` that has made the axes manual, schemes and convolution do what one rank does."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from implementations.causal_conv import causal_conv
from implementations.chunked import chunked
from implementations.context_parallel.any_kernel import CHUNKED_OVER_RANKS
from implementations.context_parallel.conftest import assert_close, mesh_of
from implementations.context_parallel.gspmd_conv import gspmd_conv
from implementations.context_parallel.halo_conv import halo_conv
from implementations.context_parallel.least_memory import LEAST_MEMORY
from implementations.context_parallel.least_work import LEAST_WORK
from implementations.context_parallel.load_balanced import LOAD_BALANCED
from implementations.context_parallel.pieces import zigzag
from implementations.context_parallel.two_phase import TWO_PHASE, two_phase

AXES = ("context",)
# Without LLVM's optimisation, which takes longer than programs as small as these run.
FOR_FEW_RUNS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
OF_TOKENS, OF_ALL = PartitionSpec(None, AXES), PartitionSpec()
RULE = (*[OF_TOKENS] * 5, OF_ALL)
# Documents that end inside a rank, at its end, in the tail that is its halo, and in a rank's first tokens; ids recur.
IDS = jnp.asarray(np.repeat([[0, 1, 0, 2, 3, 2], [5, 4, 5, 4, 5, 4]], [9, 10, 1, 1, 12, 7], axis=1))
with_and_without_documents = pytest.mark.parametrize("segment_ids", [None, IDS], ids=["one document", "documents"])


def inside(call, in_specs, *, axes=AXES, mesh=None, out_specs=(OF_TOKENS, OF_ALL), **keywords):
    """`call(..., mesh, axes)` on four ranks, inside a `shard_map` that makes every axis manual."""
    mesh = mesh_of(context=4) if mesh is None else mesh

    def local(segment_ids, *inputs):
        return call(*inputs, mesh=mesh, axes=axes, segment_ids=segment_ids, **keywords)

    return jax.shard_map(local, mesh=mesh, in_specs=(OF_TOKENS, *in_specs), out_specs=out_specs, check_vma=False)


def outputs_and_gradients(function, inputs):
    @partial(jax.jit, compiler_options=FOR_FEW_RUNS)
    def program(*inputs):
        outputs, pullback = jax.vjp(function, *inputs)
        return *outputs, *pullback(jax.tree.map(jnp.cos, outputs))

    return program(*inputs)


@with_and_without_documents
@pytest.mark.parametrize("rule", [TWO_PHASE, CHUNKED_OVER_RANKS, LEAST_WORK, LEAST_MEMORY], ids=lambda rule: rule.name)
@pytest.mark.usefixtures("x64")
def test_the_rule(rule, segment_ids, inputs):
    call = partial(inside(rule.call, RULE, chunk_size=4), segment_ids)
    wanted = partial(chunked, chunk_size=4, segment_ids=segment_ids)
    assert_close(*(outputs_and_gradients(function, inputs()) for function in (call, wanted)))


def in_order(order):
    """Tokens `[B, T, ...]`, as the pieces of `order` lie."""
    return lambda x: x.reshape(x.shape[0], len(order), -1, *x.shape[2:])[:, np.array(order)].reshape(x.shape)


ZIGZAG, BACK = (in_order(order) for order in (zigzag(4), np.argsort(zigzag(4))))


@with_and_without_documents
@pytest.mark.usefixtures("x64")
def test_the_rule_on_load_balanced_tokens(segment_ids, inputs):
    program = inside(LOAD_BALANCED.call, RULE, chunk_size=4, piece_order=zigzag(4))

    def call(*inputs):
        ids = None if segment_ids is None else ZIGZAG(segment_ids)
        o, final_state = program(ids, *map(ZIGZAG, inputs[:5]), inputs[5])
        return BACK(o), final_state

    wanted = partial(chunked, chunk_size=4, segment_ids=segment_ids)
    assert_close(*(outputs_and_gradients(function, inputs()) for function in (call, wanted)))


@with_and_without_documents
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("balanced", [False, True], ids=["sequence", "zigzag"])
@pytest.mark.usefixtures("x64")
def test_the_convolution(balanced, width, segment_ids):
    draw = np.random.default_rng(0)
    x, weight, state = (jnp.asarray(draw.normal(size=shape)) for shape in ((2, 40, 3), (3, width), (2, width - 1, 3)))
    there, back = (ZIGZAG, BACK) if balanced else (lambda x: x, lambda x: x)
    order = {"piece_order": zigzag(4)} if balanced else {}
    program = inside(halo_conv, (OF_TOKENS, OF_ALL, OF_ALL), **order)

    def call(x, weight, *state_if_any):
        ids = None if segment_ids is None else there(segment_ids)
        y, final_state = program(ids, there(x), weight, *state_if_any or [state])
        return back(y), final_state

    def wanted(x, weight, *state_if_any):
        return causal_conv(x, weight, *state_if_any or [state], segment_ids=segment_ids)

    given = (x, weight, state) if width > 1 else (x, weight)
    found = (outputs_and_gradients(f, given) for f in (call, wanted))
    assert_close(*([y for y in one if y.size] for one in found))


# What is refused


@pytest.mark.usefixtures("unchecked")
def test_some_of_the_axes_manual_and_others_not_is_refused(inputs):
    mesh = mesh_of(a=2, b=2)

    def local(*inputs):
        return two_phase(*inputs, mesh=mesh, axes=("a", "b"))

    tokens = PartitionSpec(None, "a")
    program = jax.shard_map(
        *(local,),
        mesh=mesh,
        in_specs=(*[tokens] * 5, OF_ALL),
        out_specs=(tokens, OF_ALL),
        axis_names={"a"},
        check_vma=False,
    )
    with pytest.raises(ValueError, match=r"has made \['a'\] of them manual: name all of them there, or none"):
        jax.eval_shape(jax.jit(program), *inputs(40))


@pytest.mark.usefixtures("unchecked")
def test_a_mesh_that_is_not_the_one_around_is_refused(inputs):
    other = mesh_of(context=2)

    def call(*given, mesh, **keywords):
        return two_phase(*given, mesh=other, **keywords)

    with pytest.raises(ValueError, match=r"the mesh has {'context': 2}, and that of the shard_map around .*4"):
        jax.eval_shape(inside(call, RULE), None, *inputs(40))


@pytest.mark.parametrize("mesh", [None, 4, {"context": 4}], ids=str)
@pytest.mark.usefixtures("unchecked")
def test_what_is_no_mesh_is_refused(inputs, mesh):
    with pytest.raises(ValueError, match=r"mesh must be a jax\.sharding\.Mesh"):
        two_phase(*inputs(40), mesh=mesh, axes=AXES)


@pytest.mark.usefixtures("unchecked")
def test_a_border_that_checks_what_no_type_can_say_is_refused(inputs):
    def local(*inputs):
        return two_phase(*inputs, mesh=mesh_of(context=4), axes=AXES)

    program = jax.shard_map(local, mesh=mesh_of(context=4), in_specs=RULE, out_specs=(OF_TOKENS, OF_ALL))
    with pytest.raises(ValueError, match="the shard_map around must have check_vma=False"):
        jax.eval_shape(program, *inputs(40))


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_convolution_has_types_that_can(ranks):
    mesh, draw = mesh_of(context=ranks), np.random.default_rng(0)
    given = [jnp.asarray(draw.normal(size=shape), jnp.float32) for shape in ((2, 40, 3), (3, 4), (2, 3, 3))]
    program = jax.shard_map(
        partial(halo_conv, mesh=mesh, axes=AXES),
        mesh=mesh,
        in_specs=(OF_TOKENS, OF_ALL, OF_ALL),
        out_specs=(OF_TOKENS, OF_ALL),
    )
    for found, wanted in zip(program(*given), causal_conv(*given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("unchecked")
def test_the_partitioners_convolution_is_refused():
    def call(*given, segment_ids, **keywords):
        return gspmd_conv(*given, **keywords)

    x, weight, state = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 40, 3), (3, 4), (2, 3, 3)))
    with pytest.raises(ValueError, match="no say over axes that are manual already: use halo_conv"):
        jax.eval_shape(inside(call, (OF_TOKENS, OF_ALL, OF_ALL)), None, x, weight, state)
