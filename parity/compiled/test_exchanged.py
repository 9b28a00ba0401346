"""Depth and payload of whole implementations, ours and others', and where people read them."""

import json
import math

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

import implementations
from implementations.contract import Implementation
from implementations.sequential import sequential
from parity.__main__ import main
from parity.compiled.depth import depth
from parity.compiled.exchanged import RANKS, H, K, V, exchanged
from parity.compiled.hlo import UnreadableProgram
from parity.layouts import AXES
from parity.meshes import context_mesh


def program(local):
    over_ranks = PartitionSpec(AXES)
    mapped = jax.shard_map(local, mesh=context_mesh(4), in_specs=over_ranks, out_specs=over_ranks, check_vma=False)
    return jax.jit(mapped).lower(jnp.zeros((8, 3))).compile().as_text()


def hop(x):
    return jax.lax.ppermute(x, AXES, [(0, 1), (1, 2), (2, 3)])


@pytest.mark.parametrize(
    ("local", "wanted"),
    [
        (lambda x: 2 * x, 0),
        (lambda x: hop(x), 1),
        (lambda x: jnp.sin(hop(jnp.cos(hop(x)))), 2),
        (lambda x: hop(x) + hop(x + 1), 1),
        (lambda x: hop(hop(x)) + hop(x), 2),
        (lambda x: jax.lax.fori_loop(0, 5, lambda _, y: hop(y + 1), x), 5),
        (lambda x: jax.lax.fori_loop(0, 5, lambda _, y: y + 1, hop(x)), 1),
        (lambda x: jax.lax.psum(hop(x), AXES) + 0 * x, 2),
    ],
)
def test_collectives_that_wait_for_one_another_are_counted(local, wanted):
    assert depth(program(local)) == wanted


def test_a_loop_without_a_number_proves_nothing():
    def until(x):
        return jax.lax.while_loop(lambda y: y[0, 0] < 9, lambda y: hop(y) + 1, x)

    with pytest.raises(UnreadableProgram, match="how often this exchanges is not said"):
        depth(program(until))


def test_every_exchange_has_the_depth_and_payload_that_it_says():
    """The table of `exchange.py`; sums of a state are counted as those of a ring of devices."""
    by_name = {x.name: x for x in (*implementations.ALL, *implementations.VARIANTS)}
    rounds, a_map, state = math.ceil(math.log2(RANKS)), K * (K + V), K * V
    a_sum = 2 * (RANKS - 1) * state
    wanted = {
        "two_phase": (1, RANKS * (RANKS - 1) * a_map),
        "fold_log_depth": (rounds + 1, (RANKS * rounds - 2**rounds + 1) * a_map + (RANKS - 1) * state + a_sum),
        "fold_ring": (RANKS, (RANKS - 1) * state + a_sum),
    }
    for name, (steps, elements) in wanted.items():
        found = exchanged(by_name[name])
        assert (found.depth[0], found.elements[0], found.growing, found.problem) == (steps, elements, False, None)


def gathers_everything(*inputs, scale, chunk_size, mesh, axes):
    whole = jax.sharding.NamedSharding(mesh, PartitionSpec())
    return sequential(*(jax.lax.with_sharding_constraint(x, whole) for x in inputs), scale=scale)


def test_what_gathers_the_sequence_is_said_to_grow():
    found = exchanged(Implementation("gathers", gathers_everything, context_parallel=True))
    assert found.growing
    assert found.elements[0] > 1000


def test_what_cannot_be_compiled_says_why_and_hides_no_other(tmp_path, capsys):
    def raises(*inputs, **keywords):
        raise ValueError("no such mesh")

    found = exchanged(Implementation("raises", raises, context_parallel=True))
    assert found.problem == "ValueError: no such mesh"
    assert found.depth is found.elements is None
    assert main(["exchanged", "--implementation", "implementations:ALL", "--output", str(tmp_path)]) == 0
    assert "two_phase" in capsys.readouterr().out
    names = [row["implementation"] for row in json.loads((tmp_path / "exchanged.json").read_text())["rows"]]
    assert names == ["two_phase", "three_phase"]
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert f"| two\\_phase | {RANKS} | {K} x {V} | 1 | 2 |" in page
    assert "Exchanged between ranks" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_nothing_to_ask_is_said(capsys):
    assert main(["exchanged", "--implementation", "implementations.chunked:CHUNKED"]) == 2
    assert "none of them is context parallel" in capsys.readouterr().err
    assert main(["exchanged", "--implementation", "implementations.chunked:NOTHING"]) == 2


def test_no_size_is_taken_for_another():
    assert len({1, H, K, V, RANKS}) == 5
