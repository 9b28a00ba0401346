"""What a device holds, from the compiled programs: nothing that grows with the ranks but their maps, and of each chunk
no more than the state that a fold carries.
"""

import functools

import pytest

from implementations.chunked import chunked
from implementations.context_parallel.affine import fold
from implementations.context_parallel.least_memory import least_memory
from implementations.context_parallel.reverse_fold import reverse_fold
from implementations.context_parallel.three_phase import local_pass, three_phase
from implementations.context_parallel.two_phase import two_phase
from parity.compiled.other_folds import associative_fold, without_checkpoint
from parity.compiled.programs import Sizes, map_of_a_rank, scheme, temporaries

SIZES = Sizes(N=32, C=8, K=16, V=12, B=2, H=2)
STATE = 4 * SIZES.B * SIZES.H * SIZES.K * SIZES.V  # bytes
MAP = 4 * SIZES.B * SIZES.H * SIZES.K * (SIZES.K + SIZES.V)


# More ranks, each of which holds the same number of tokens


def growth_per_rank(call, *, backward):
    """Bytes, from two to eight ranks."""
    two, eight = (temporaries(scheme(call, SIZES, ranks, backward=backward)) for ranks in (2, 8))
    return (eight - two) / 6


@pytest.mark.parametrize("call", [two_phase, three_phase])
def test_of_another_rank_a_device_holds_its_map_and_the_state_that_enters_it(call):
    """And the cotangent of the map: it arrived, and is sent."""
    assert 2 * MAP <= growth_per_rank(call, backward=True) <= 2 * MAP + STATE


def test_a_scheme_that_gathers_tokens_holds_those_of_another_rank():
    def gathers(*inputs, scale, chunk_size, mesh, axes):
        return chunked(*inputs, scale=scale, chunk_size=chunk_size)

    tokens_of_a_rank = 4 * SIZES.N * SIZES.C * SIZES.B * SIZES.H * (2 * SIZES.K + SIZES.V)
    assert growth_per_rank(gathers, backward=False) > tokens_of_a_rank > 2 * MAP + STATE


# More chunks


def per_chunk(function, *, backward):
    """Bytes that another chunk takes, in matrices of K x K: from 4 chunks to 8."""
    sizes = SIZES._replace(V=SIZES.K)
    few, many = (temporaries(map_of_a_rank(function, sizes._replace(N=N), backward=backward)) for N in (4, 8))
    return (many - few) / 4 / (4 * SIZES.B * SIZES.H * SIZES.K**2)


@pytest.mark.parametrize("function", [fold, local_pass, reverse_fold])
def test_a_fold_holds_as_much_for_any_number_of_chunks(function):
    assert per_chunk(function, backward=False) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize(("function", "states"), [(fold, 2), (local_pass, 2), (reverse_fold, 1)])
def test_a_backward_keeps_what_the_fold_carries(function, states):
    """A and B, of which `reverse_fold` needs one."""
    assert per_chunk(function, backward=True) == pytest.approx(states, abs=0.01)


@pytest.mark.parametrize(("function", "states"), [(fold, 3), (local_pass, 3), (reverse_fold, 1.5)])
def test_without_checkpoint_it_keeps_what_is_made_of_the_chunk_too(function, states):
    """The chunk's own A; what [B | A] writes, C (K + V); X, C K. A chunk is half of K."""
    assert SIZES.C == SIZES.K / 2
    assert per_chunk(without_checkpoint(function), backward=True) == pytest.approx(states, abs=0.01)


def test_an_associative_scan_holds_every_running_composition():
    """Forward alone: of every chunk its map, and those of the tree, which are as many."""
    assert per_chunk(associative_fold, backward=False) >= 2 * 2
    assert per_chunk(associative_fold, backward=True) >= 2 * 2 * 2


@pytest.mark.parametrize("chunks_a_segment", [2, 4, 8])
def test_the_least_memory_is_one_state_a_segment(chunks_a_segment):
    call = functools.partial(least_memory, chunks_a_segment=chunks_a_segment)

    def held(N, *, backward):
        return temporaries(scheme(call, SIZES._replace(N=N), 2, backward=backward))

    assert (held(64, backward=True) - held(32, backward=True)) / STATE == pytest.approx(32 / chunks_a_segment, abs=0.1)
    assert held(64, backward=False) - held(32, backward=False) < STATE
