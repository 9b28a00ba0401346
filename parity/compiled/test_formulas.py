"""What compiled programs cost is what the algebra says, product for product."""

import functools

import pytest

from implementations.context_parallel.affine import fold
from implementations.context_parallel.exchange import EXCHANGES
from implementations.context_parallel.least_work import least_work
from implementations.context_parallel.reverse_fold import reverse_fold
from implementations.context_parallel.three_phase import local_pass
from implementations.context_parallel.two_phase import two_phase
from parity.compiled import formulas
from parity.compiled.flops import flops
from parity.compiled.programs import Sizes, adjoint_pass, core, map_of_a_rank, scheme

SIZES = [
    pytest.param(Sizes(N=3, C=8, K=5, V=7, B=2, H=3), id="K_below_V"),
    pytest.param(Sizes(N=2, C=64, K=128, V=128), id="Qwen3_Next"),
]
BACKWARD = pytest.mark.parametrize("backward", [False, True], ids=["forward", "with_backward"])


def count(compiled):
    return flops(compiled.as_text()).total


@BACKWARD
@pytest.mark.parametrize("sizes", SIZES)
def test_the_core(sizes, backward):
    N, C, K, V, B, H = sizes
    assert count(core(sizes, backward=backward)) == N * B * H * formulas.core(C, K, V, backward=backward)


@BACKWARD
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("function", [fold, local_pass, reverse_fold])
def test_the_map_of_a_rank(function, sizes, backward):
    N, C, K, V, B, H = sizes
    formula = getattr(formulas, function.__name__)
    found = count(map_of_a_rank(function, sizes, backward=backward))
    assert found == N * B * H * formula(C, K, V, backward=backward)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_adjoint_of_the_state_alone(sizes):
    N, C, K, V, B, H = sizes
    assert count(adjoint_pass(sizes)) == N * B * H * formulas.adjoint_pass(C, K, V)


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize("name", EXCHANGES)
def test_a_scheme_is_its_core_its_map_and_its_exchange(name, ranks):
    """Whole programs, forward, on each rank."""
    sizes = Sizes(N=3, C=8, K=5, V=7, B=2, H=3)
    N, C, K, V, B, H = sizes
    call = functools.partial(two_phase, exchange=EXCHANGES[name], map_of_rank=reverse_fold)
    chunks = N * (formulas.core(C, K, V) + formulas.reverse_fold(C, K, V))
    assert count(scheme(call, sizes, ranks)) == B * H * (chunks + formulas.exchange(name, ranks, K, V))


@pytest.mark.parametrize(
    ("rank", "switch", "replays", "folds"), [("first", 0, min, 0), ("between", 1, max, 1), ("last", 2, max, 0)]
)
def test_the_least_work_of_a_rank(rank, switch, replays, folds):
    """The branches that it takes: of three before the exchange, and whether it replays after it."""
    N, C, K, V, B, H = sizes = Sizes(N=3, C=8, K=5, V=7, B=2, H=3)

    def taken(branches):
        branches = list(branches)
        return branches[switch] if len(branches) == 3 else replays(branches, key=lambda flops: flops.total)

    found = flops(scheme(least_work, sizes, 4).as_text(), of_branches=taken).total
    of_chunks = N * (formulas.core(C, K, V) + folds * formulas.reverse_fold(C, K, V))
    assert found == B * H * (of_chunks + formulas.exchange("all_gather_prefix", 4, K, V)), rank


def test_the_figures_of_the_threads():
    """A chunk of 64 and a head of 128 x 128: 11.8 MFLOP for the core, 12.6 for composing dense maps (thread 2)."""
    assert round(formulas.core(64, 128, 128) / 1e6, 1) == 11.8
    assert round(formulas.fold(64, 128, 128) / 1e6, 1) == 12.6


def test_an_exchange_without_a_formula_is_refused():
    with pytest.raises(ValueError, match="no formula for the exchange 'mail'"):
        formulas.exchange("mail", 2, 4, 4)
