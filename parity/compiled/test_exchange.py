"""What the ranks exchange, counted in the compiled program: a figure for each form, whatever the length (threads 2, 3).

R ranks, and of all rows and heads a state of `B H K V` elements and a map of `B H K (K + V)`.
"""

import functools
import math
from collections import Counter

import pytest

from implementations.context_parallel.exchange import EXCHANGES
from implementations.context_parallel.three_phase import three_phase
from implementations.context_parallel.two_phase import two_phase
from parity.compiled.collectives import collectives
from parity.compiled.programs import over_layout
from parity.layouts import over
from parity.shapes import Shape

B, H, K, V = 2, 3, 4, 5
STATE, MAP = B * H * K * V, B * H * K * (K + V)
LENGTHS = (
    8 * 13,
    16 * 13,
)  # a multiple of every number of ranks; no other size is one of these, or a rank's part of it

SCHEMES = [
    *(pytest.param(two_phase, name, id=f"two_phase_{name}") for name in EXCHANGES),
    pytest.param(three_phase, "all_gather_prefix", id="three_phase_all_gather_prefix"),
]


@functools.cache
def exchanged(scheme, exchange, tokens, ranks, *, backward):
    """The collectives of the outputs, or of the outputs and all gradients."""
    call = functools.partial(scheme, exchange=EXCHANGES[exchange])
    shape = Shape("", B, tokens, H, H, K, V, chunk_size=8)
    return collectives(over_layout(call, over(ranks), shape, backward=backward).as_text())


def received(found):
    """Elements that arrive, by kind; a reduction of a state to all is counted."""
    total = Counter()
    for each in found:
        if each.kind == "all-reduce":
            assert each.elements == len(each.shapes) * STATE  # several may be one
            total["sums of a state"] += len(each.shapes)
        else:
            total[each.kind] += each.received
    return dict(total)


def forward_figure(exchange, ranks):
    """The table of `exchange.py`."""
    rounds = math.ceil(math.log2(ranks))
    match exchange:
        case "all_gather_prefix":
            return {"all-gather": ranks * (ranks - 1) * MAP}
        case "log_depth_prefix":
            maps = ranks * rounds - 2**rounds + 1
            return {"collective-permute": maps * MAP + (ranks - 1) * STATE, "sums of a state": 1}
        case "ring":
            return {"collective-permute": (ranks - 1) * STATE, "sums of a state": 1}


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize(("scheme", "exchange"), SCHEMES)
def test_the_forward_exchanges_what_its_form_says(scheme, exchange, ranks):
    assert received(exchanged(scheme, exchange, LENGTHS[0], ranks, backward=False)) == forward_figure(exchange, ranks)


def test_a_gathered_map_is_one_of_every_rank():
    """Thread 3: `R B H K (K + V)` elements on each."""
    assert sum(x.elements for x in exchanged(two_phase, "all_gather_prefix", LENGTHS[0], 8, backward=False)) == 8 * MAP


@pytest.mark.parametrize(("scheme", "exchange"), SCHEMES)
def test_the_backward_exchanges_as_much_again_and_sums_the_gradients_of_states(scheme, exchange):
    found = received(exchanged(scheme, exchange, LENGTHS[0], 4, backward=True))
    forward = forward_figure(exchange, 4)
    if exchange == "all_gather_prefix":  # the transpose of a gather is a scattered sum
        assert found == forward | {"reduce-scatter": forward["all-gather"], "sums of a state": 1}
    else:  # of the final state, of its cotangent, and of dh0
        assert found == {"collective-permute": 2 * forward["collective-permute"], "sums of a state": 3}


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(("scheme", "exchange"), SCHEMES)
def test_nothing_that_is_exchanged_knows_how_long_the_sequence_is(scheme, exchange, backward):
    short, long = (exchanged(scheme, exchange, tokens, 4, backward=backward) for tokens in LENGTHS)
    assert Counter(short) == Counter(long)
    assert all(each.times == 1 for each in short)
    sizes = {size for each in short for shape in each.shapes for size in shape}
    assert not sizes & {tokens // ranks for tokens in LENGTHS for ranks in (1, 4)}
