"""What one rank does where all axes are manual already is what the schemes and the convolution do on their own."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from implementations.causal_conv import causal_conv
from implementations.chunked import CHUNKED, chunked
from implementations.context_parallel.any_kernel import CHUNKED_OVER_RANKS
from implementations.context_parallel.conftest import assert_close, mesh_of
from implementations.context_parallel.load_balanced import LOAD_BALANCED
from implementations.context_parallel.on_rank import conv_on_rank, on_rank
from implementations.context_parallel.three_phase import THREE_PHASE
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.context_parallel.variants import VARIANTS

AXES = ("context",)
# Without LLVM's optimisation, which takes longer than programs as small as these run.
FOR_FEW_RUNS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
OF_TOKENS, OF_ALL = PartitionSpec(None, AXES), PartitionSpec()
# Documents that end inside a rank, at its end, in the tail that is its halo, and in a rank's first tokens; ids recur.
IDS = jnp.asarray(np.repeat([[0, 1, 0, 2, 3, 2], [5, 4, 5, 4, 5, 4]], [9, 10, 1, 1, 12, 7], axis=1))
with_and_without_documents = pytest.mark.parametrize("segment_ids", [None, IDS], ids=["one document", "documents"])


def on_four(local, in_specs, segment_ids):
    """`local` on four ranks, inside a `shard_map` that makes every axis manual."""

    def inside(segment_ids, *inputs):
        return local(*inputs, axes=AXES, segment_ids=segment_ids)

    manual = jax.shard_map(
        *(inside,),
        mesh=mesh_of(context=4),
        in_specs=(OF_TOKENS, *in_specs),
        out_specs=(OF_TOKENS, OF_ALL),
        check_vma=False,
    )
    return partial(manual, segment_ids)


def outputs_and_gradients(function, inputs):
    @partial(jax.jit, compiler_options=FOR_FEW_RUNS)
    def program(*inputs):
        outputs, pullback = jax.vjp(function, *inputs)
        return *outputs, *pullback(jax.tree.map(jnp.cos, outputs))

    return program(*inputs)


@with_and_without_documents
@pytest.mark.parametrize("rule", [TWO_PHASE, THREE_PHASE, VARIANTS[1]], ids=["fold", "local_pass", "fold_ring"])
@pytest.mark.usefixtures("x64")
def test_the_rule(rule, segment_ids, inputs):
    call = on_four(partial(on_rank(rule), chunk_size=4), (*[OF_TOKENS] * 5, OF_ALL), segment_ids)
    wanted = partial(chunked, chunk_size=4, segment_ids=segment_ids)
    assert_close(*(outputs_and_gradients(function, inputs()) for function in (call, wanted)))


@with_and_without_documents
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.usefixtures("x64")
def test_the_convolution(width, segment_ids):
    draw = np.random.default_rng(0)
    x, weight, state = (jnp.asarray(draw.normal(size=shape)) for shape in ((2, 40, 3), (3, width), (2, width - 1, 3)))
    call = on_four(conv_on_rank, (OF_TOKENS, OF_ALL, OF_ALL), segment_ids)
    wanted = partial(causal_conv, segment_ids=segment_ids)
    given = (x, weight, state) if width > 1 else (x, weight)
    found = (
        outputs_and_gradients(lambda *some, f=f: f(*some, *(x, weight, state)[len(some) :]), given)
        for f in (call, wanted)
    )
    assert_close(*([y for y in one if y.size] for one in found))


@pytest.mark.parametrize("rule", [CHUNKED, CHUNKED_OVER_RANKS, LOAD_BALANCED], ids=lambda rule: rule.name)
def test_what_is_made_of_other_parts_is_not_known(rule):
    assert on_rank(rule) is None
