"""What is exchanged over several axes, beside axes of rows and heads, by pieces, and by a scheme around any kernel."""

import functools
import math

import pytest

import implementations
from implementations.context_parallel.any_kernel import CHUNKED_OVER_RANKS
from implementations.context_parallel.least_work import LEAST_WORK
from implementations.context_parallel.load_balanced import LOAD_BALANCED
from implementations.context_parallel.two_phase import TWO_PHASE
from parity.compiled.collectives import collectives
from parity.compiled.programs import over_layout
from parity.layouts import AROUND_TENSOR, BESIDE_BOTH, BESIDE_DATA, LAYOUTS, MINOR_FIRST, TWO_BY_FOUR, ZIGZAG, over
from parity.shapes import Shape

B, H, K, V = 2, 6, 4, 5
MAP, STATE = B * H * K * (K + V), B * H * K * V
TOKENS = 8 * 13

RING = next(x for x in implementations.VARIANTS if x.name == "fold_ring")


@functools.cache
def exchanged(implementation, layout, tokens=TOKENS, *, backward=False):
    shape = Shape("", B, tokens, H, H, K, V, chunk_size=8)
    return collectives(over_layout(implementation.call, layout, shape, backward=backward).as_text())


def received(found, kind):
    """Over all devices: of what is exchanged among ranks there is as much in each of the groups beside."""
    return sum(each.received for each in found if each.kind == kind)


@pytest.mark.parametrize(
    "layout",
    [over(8), TWO_BY_FOUR, MINOR_FIRST, BESIDE_DATA, AROUND_TENSOR, BESIDE_BOTH],
    ids=lambda x: x.name or "one",
)
def test_maps_are_gathered_among_the_ranks_and_nothing_between_rows_or_heads(layout):
    """Beside other axes by permutations: of a gather over some axes only XLA makes one over all."""
    found = exchanged(TWO_PHASE, layout)
    kind = "collective-permute" if layout.beside else "all-gather"
    assert {each.kind for each in found} == {kind}
    assert received(found, kind) == layout.ranks * (layout.ranks - 1) * MAP


@pytest.mark.parametrize("layout", [over(4), MINOR_FIRST, BESIDE_BOTH], ids=lambda layout: layout.name or "one")
def test_a_state_hops_from_rank_to_rank_whatever_lies_beside(layout):
    assert received(exchanged(RING, layout), "collective-permute") == (layout.ranks - 1) * STATE


def test_of_load_balanced_tokens_a_map_of_every_piece_travels():
    found = exchanged(LOAD_BALANCED, ZIGZAG)
    assert {each.kind for each in found} == {"all-gather"}
    assert received(found, "all-gather") == ZIGZAG.holders * (ZIGZAG.holders - 1) * 2 * MAP


def test_any_kernel_exchanges_what_a_scheme_does():
    found = exchanged(CHUNKED_OVER_RANKS, over(4))
    assert received(found, "all-gather") == 4 * 3 * MAP


def test_the_least_work_exchanges_a_state_more():
    """The last rank alone knows the final state."""
    found = exchanged(LEAST_WORK, over(4))
    assert received(found, "all-gather") == 4 * 3 * MAP
    sums = [each for each in found if each.kind == "all-reduce"]
    assert [each.elements for each in sums] == [STATE]


@pytest.mark.parametrize(
    ("implementation", "layout"),
    [
        (TWO_PHASE, MINOR_FIRST),
        (TWO_PHASE, BESIDE_BOTH),
        (LOAD_BALANCED, ZIGZAG),
        (CHUNKED_OVER_RANKS, over(4)),
        (LEAST_WORK, over(4)),
    ],
    ids=lambda x: x.name or "one",
)
def test_nothing_that_is_exchanged_knows_how_long_the_sequence_is(implementation, layout):
    short, long = (exchanged(implementation, layout, tokens, backward=True) for tokens in (TOKENS, 2 * TOKENS))
    assert sorted(map(repr, short)) == sorted(map(repr, long))
    sizes = {size for each in short for shape in each.shapes for size in shape}
    parts = {1, layout.ranks, layout.holders}
    assert not sizes & {tokens // part for tokens in (TOKENS, 2 * TOKENS) for part in parts}


def test_every_named_layout_is_of_eight_devices_or_fewer():
    assert max(math.prod(size for _, size in layout.mesh) for layout in LAYOUTS.values()) <= 8
