"""Depth and payload of whole implementations, ours and others', and where people read them."""

import json
import math

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

import implementations
from implementations.context_parallel.load_balanced import LOAD_BALANCED
from implementations.context_parallel.two_phase import two_phase
from implementations.contract import FEATURES, Implementation
from implementations.sequential import sequential
from parity.__main__ import main
from parity.compiled.depth import depth
from parity.compiled.exchanged import RANKS, TOKENS_OF_A_PIECE, ZIGZAG, H, K, V, exchanged
from parity.compiled.hlo import UnreadableProgram
from parity.layouts import AXES, over
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
        found = exchanged(by_name[name], over(RANKS))
        assert (found.depth[0], found.elements[0], found.growing, found.problem) == (steps, elements, False, None)


def gathers_everything(*inputs, scale, chunk_size, mesh, axes):
    whole = jax.sharding.NamedSharding(mesh, PartitionSpec())
    return sequential(*(jax.lax.with_sharding_constraint(x, whole) for x in inputs), scale=scale)


def test_what_gathers_the_sequence_is_said_to_grow():
    found = exchanged(Implementation("gathers", gathers_everything, context_parallel=True), over(RANKS))
    assert found.growing
    assert found.elements[0] > 1000


def in_a_loop(tokens, axes):
    """Every token on every rank, one a turn: the sequence is gathered in pieces that do not grow."""
    return jax.lax.scan(lambda _, x: (None, jax.lax.all_gather(x, axes)), None, jnp.moveaxis(tokens, 1, 0))[1]


def gathers_in_a_loop(q, k, v, g, beta, initial_state, *, scale, chunk_size, mesh, axes):
    def local(*inputs):
        return in_a_loop(inputs[2], axes).sum() + inputs[2], inputs[5]

    tokens = PartitionSpec(None, axes)
    specs = ((tokens,) * 5 + (PartitionSpec(),), (tokens, PartitionSpec()))
    return jax.shard_map(local, mesh=mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)(
        q, k, v, g, beta, initial_state
    )


def test_what_gathers_the_sequence_in_a_loop_is_said_to_grow():
    """Each collective is small, and as many of them wait for one another as a rank has tokens."""
    implementation = Implementation(
        "loops", gathers_in_a_loop, context_parallel=True, supports=FEATURES - {"gradients"}
    )
    found = exchanged(implementation, over(RANKS))
    tokens = 2 * TOKENS_OF_A_PIECE
    assert (found.depth, found.elements) == ([tokens], [RANKS * tokens * (RANKS - 1) * V])
    assert found.growing


@pytest.mark.parametrize("missing", ["gradients", "unequal_head_sizes", "ragged"])
def test_what_is_not_claimed_is_not_asked(missing):
    def call(*inputs, chunk_size, **keywords):
        tokens = inputs[2].shape[1] // RANKS
        if missing == "unequal_head_sizes" and inputs[0].shape[-1] != inputs[2].shape[-1]:
            raise ValueError("K is not V")
        if missing == "ragged" and tokens % chunk_size:
            raise ValueError("not a multiple of the chunk")
        return two_phase(*inputs, chunk_size=chunk_size, **keywords)

    found = exchanged(
        Implementation("claims_less", call, context_parallel=True, supports=FEATURES - {missing}), over(RANKS)
    )
    assert found.problem is None
    assert len(found.depth) == len(found.elements) == (1 if missing == "gradients" else 2)


def test_what_claims_f64_alone_is_asked_in_f64():
    def call(*inputs, **keywords):
        assert all(x.dtype == jnp.float64 for x in inputs)
        return two_phase(*inputs, **keywords)

    found = exchanged(Implementation("f64_only", call, context_parallel=True, arithmetic={"f64": "f64"}), over(RANKS))
    assert found.problem is None


def test_in_zigzag_order_two_maps_of_a_rank_are_exchanged():
    of_sequence, of_zigzag = (exchanged(LOAD_BALANCED, layout) for layout in (over(RANKS), ZIGZAG))
    assert of_zigzag.implementation == "load_balanced, zigzag"
    assert of_zigzag.elements[0] == 2 * of_sequence.elements[0]


def test_what_jax_cannot_trace_has_a_row():
    implementation = Implementation(
        "foreign", two_phase, context_parallel=True, traceable=False, supports=FEATURES - {"gradients"}
    )
    assert "jax cannot trace it" in exchanged(implementation, over(RANKS)).problem


def test_where_nothing_can_be_written_is_said_before_anything_is_compiled(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    assert main(["exchanged", "--implementation", "implementations:ALL", "--output", str(tmp_path / "taken")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no directory can be made there" in printed.err


def test_what_cannot_be_compiled_says_why_and_hides_no_other(tmp_path, capsys):
    def raises(*inputs, **keywords):
        raise ValueError("no such mesh")

    found = exchanged(Implementation("raises", raises, context_parallel=True), over(RANKS))
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
