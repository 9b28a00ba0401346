"""The reader sees every collective of a program, and what it carries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from parity.compiled.collectives import Collective, collectives
from parity.compiled.hlo import UnreadableProgram
from parity.layouts import AXES
from parity.meshes import context_mesh

OVER_RANKS = PartitionSpec(AXES)


def on_4_ranks(local, *arguments, out_specs=OVER_RANKS):
    program = jax.shard_map(
        local, mesh=context_mesh(4), in_specs=(OVER_RANKS,) * len(arguments), out_specs=out_specs, check_vma=False
    )
    return jax.jit(program).lower(*arguments).compile().as_text()


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(context_mesh(4), OVER_RANKS))


@pytest.mark.parametrize(
    ("local", "wanted", "received"),
    [
        (lambda x: jax.lax.all_gather(x, AXES), Collective("all-gather", ((4, 2, 3),), 4, 4), 4 * 3 * 6),
        (lambda x: jax.lax.psum(x, AXES), Collective("all-reduce", ((2, 3),), 4, 4), 2 * 3 * 6),
        (
            lambda x: jax.lax.ppermute(x, AXES, [(0, 1), (1, 2)]),
            Collective("collective-permute", ((2, 3),), 4, 2),
            2 * 6,
        ),
        (
            lambda x: jax.lax.psum_scatter(jnp.tile(x, (2, 1)), AXES),
            Collective("reduce-scatter", ((1, 3),), 4, 4),
            4 * 3 * 3,
        ),
    ],
    ids=["all_gather", "psum", "ppermute", "psum_scatter"],
)
def test_each_kind_is_read(local, wanted, received):
    (found,) = collectives(on_4_ranks(local, array(8, 3)))
    assert found == wanted
    assert found.received == received
    assert found.elements == np.prod(wanted.shapes[0])


def test_what_stays_where_it_is_is_not_sent():
    (found,) = collectives(on_4_ranks(lambda x: jax.lax.ppermute(x, AXES, [(0, 0), (1, 2)]), array(8, 3)))
    assert found.received == 6


def in_a_loop(times, local):
    return lambda x: jax.lax.fori_loop(0, times, lambda _, y: local(y), x)


def hop(x):
    return x + jax.lax.ppermute(x, AXES, [(0, 1)])


@pytest.mark.parametrize(("local", "times"), [(hop, 1), (in_a_loop(5, hop), 5), (in_a_loop(3, in_a_loop(5, hop)), 15)])
def test_what_is_in_a_loop_is_exchanged_as_often_as_it_runs(local, times):
    (found,) = collectives(on_4_ranks(local, array(8, 3)))
    assert found.times == times
    assert found.received == times * 2 * 3


def test_how_much_a_loop_without_a_number_exchanges_is_not_said():
    def until(x):
        return jax.lax.while_loop(lambda y: y[0, 0] < 9, hop, x)

    (found,) = collectives(on_4_ranks(until, array(8, 3)))
    assert found.times is None
    with pytest.raises(UnreadableProgram, match="how often this is exchanged is not said: collective-permute"):
        _ = found.received


def test_every_group_exchanges_among_its_own():
    def in_pairs(x):
        return jax.lax.all_gather(x, AXES, axis_index_groups=[[0, 1], [2, 3]])

    (found,) = collectives(on_4_ranks(in_pairs, array(8, 3)))
    assert (found.links, found.groups) == (2, 2)
    assert found.received == 4 * 2 * 3


def test_a_gather_that_nobody_asked_for_is_seen():
    """The compiler inserts it: 104 tokens are laid out over the ranks, and the result is to be whole."""
    mesh = context_mesh(4)
    whole = NamedSharding(mesh, PartitionSpec())
    program = jax.jit(lambda x: jnp.flip(x, 0), out_shardings=whole)
    found = collectives(program.lower(array(104, 3)).compile().as_text())
    assert any(104 in shape for each in found for shape in each.shapes)


def test_a_program_on_one_device_has_none():
    assert collectives(jax.jit(jnp.sin).lower(1.0).compile().as_text()) == []


def test_text_that_cannot_be_read_proves_nothing():
    with pytest.raises(UnreadableProgram, match="begins with HloModule"):
        collectives("module @jit_f {}")
    head = "HloModule m\n\nENTRY %main (p: f32[2]) -> f32[2] {\n"
    with pytest.raises(UnreadableProgram, match="between whom a all-gather is cannot be read"):
        collectives(head + "  %x = f32[8] all-gather(%p), dimensions={0}\n}")
    with pytest.raises(UnreadableProgram, match="between whom a all-gather is cannot be read"):
        collectives(head + "  %x = f32[8] all-gather(%p), replica_groups=mesh['a'=4] {'a':(1)2}, dimensions={0}\n}")
    with pytest.raises(UnreadableProgram, match="a collective of no array"):
        collectives(head + "  %x = token[] all-reduce(%p), replica_groups={{0,1}}\n}")


def test_combined_and_asynchronous_forms_are_read():
    head = "HloModule m\n\nENTRY %main (p: f32[2]) -> f32[2] {\n"
    combined = "  %x = (f64[8,3]{1,0}, f64[8]{0}) all-gather(%p, %q), replica_groups=[2,4]<=[8], dimensions={0}\n}"
    assert collectives(head + combined) == [Collective("all-gather", ((8, 3), (8,)), 8, 4, groups=2)]
    started = (
        "  %x = (bf16[2]{0}, bf16[2]{0}, u32[], u32[]) collective-permute-start(%p), "
        "source_target_pairs={{0,1},{1,2},{2,3}}\n}"
    )
    assert collectives(head + started) == [Collective("collective-permute", ((2,),), 2, 3)]


@pytest.mark.parametrize(
    ("said", "links", "groups"),
    [
        ("{{0,1},{2,3}}", 2, 2),
        ("{{0,1,2,3}}", 4, 1),
        ("[2,4]<=[8]", 4, 2),
        ("[4,2]<=[2,4]T(1,0)", 2, 4),
        ("mesh['a'=4,'b'=2] {'a'}", 4, 2),
        ("mesh['a'=4,'b'=2] {'a','b'}", 8, 1),
        ("mesh['a'=4,'b'=2], device_ids=([2,2,2]T(1,0,2)) {'a'}", 4, 2),
    ],
)
def test_every_way_to_say_between_whom_is_read(said, links, groups):
    line = f"  %x = f32[8] all-gather(%p), replica_groups={said}, dimensions={{0}}"
    (found,) = collectives(f"HloModule m\n\nENTRY %main (p: f32[2]) -> f32[8] {{\n{line}\n}}")
    assert (found.links, found.groups) == (links, groups)
