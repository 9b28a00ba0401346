"""Where documents begin, and that nothing at all crosses from one to another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

import implementations
from oracles.gated_delta_rule import GRADIENTS
from parity.packing import PACKINGS, segment_ids
from parity.problem import Problem
from parity.run import REPLICATED, Answer, run
from parity.shapes import RAGGED, SHAPES, SHORT, UNEVEN

RANKS = 4


def starts(packing, shape, row):
    return (np.flatnonzero(np.diff(segment_ids(packing, shape)[row])) + 1).tolist()


def test_documents_begin_where_they_can_be_missed():
    held, chunk = RAGGED.T // 8, RAGGED.chunk_size
    edges = [rank * held for rank in range(1, 8)]
    assert starts("at_edges", RAGGED, 0) == edges
    assert starts("at_edges", RAGGED, 1) == [40, 83, 122, 165, 204, 247, 286]
    assert {chunk, 2 * chunk, 3 * chunk, held + chunk, held + 2 * chunk} <= set(starts("in_chunks", RAGGED, 0))
    assert starts("in_chunks", RAGGED, 1)[:8] == [3, 4, 5, 20, 33, held + 3, held + 4, held + 5]
    assert starts("long", RAGGED, 0) == [5, 325]
    assert starts("long", RAGGED, 1) == [1, 164, 327]
    assert starts("at_edges", UNEVEN, 2) == [19, 38, 57, 76]
    assert starts("at_edges", SHORT, 0) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_ids_are_those_of_tokens_and_come_again(packing, shape):
    ids = segment_ids(packing, shape)
    assert ids.shape == (shape.B, shape.T)
    assert ids.dtype == np.int32
    for row in range(shape.B):
        documents = [ids[row, start] for start in (0, *starts(packing, shape, row))]
        assert all(a != b for a, b in pairwise(documents))
        assert len(documents) <= 5 or len(set(documents)) < len(documents)


def test_a_problem_says_that_it_is_packed_and_draws_values_of_its_own():
    packed, plain = (Problem("typical", SHORT, "f64", packing=packing) for packing in ("long", ""))
    assert packed.name == "typical-short-packed_long"
    assert packed.segment_ids.tolist() == segment_ids("long", SHORT).tolist()
    assert plain.segment_ids is None
    assert not np.array_equal(packed.arguments["v"], plain.arguments["v"])


# Nothing crosses


@dataclass(frozen=True)
class Changed(Problem):
    """A problem with some of its values replaced; no compilation is another for it."""

    replaced: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)

    @property
    def arguments(self) -> dict[str, np.ndarray]:
        return Problem(self.regime, self.shape, self.dtype, packing=self.packing).arguments | dict(self.replaced)


def changed(problem: Problem, **replaced: np.ndarray) -> Changed:
    return Changed(problem.regime, problem.shape, problem.dtype, packing=problem.packing, replaced=replaced)


def whole(answer: Answer, quantity: str) -> np.ndarray:
    pieces = answer.pieces[quantity]
    return pieces[0] if quantity in REPLICATED else np.concatenate(pieces, axis=1)


PACKED = [x for x in (*implementations.ALL, *implementations.VARIANTS) if x.packed]
PROBLEMS = {
    x: Problem("long_memory", RAGGED, "f64" if "f64" in x.arithmetic else "bf16", packing="in_chunks") for x in PACKED
}
each_implementation = pytest.mark.parametrize(
    ("implementation", "problem"),
    PROBLEMS.items(),
    # As an item of the gate, whose program it shares.
    ids=[f"{x.name}-{p.dtype}-{p.regime}_packed_{p.packing}-{p.shape.name}" for x, p in PROBLEMS.items()],
)


def middle_document() -> np.ndarray:
    """Tokens of a document of each row that neither begins nor ends it, of several chunks or of one token."""
    chosen = np.zeros((RAGGED.B, RAGGED.T), bool)
    for row in range(RAGGED.B):
        begins = starts("in_chunks", RAGGED, row)
        chosen[row, begins[4] : begins[5]] = True
    return chosen


@pytest.mark.gate
@pytest.mark.ranks(RANKS)
@each_implementation
def test_no_gradient_crosses_a_boundary(implementation, problem):
    """Cotangents in one document alone: all gradients of all others are exactly 0, and those of its own are not."""
    mine = middle_document()
    x = problem.arguments
    do = np.where(mine[..., None, None], x["do"], 0).astype(x["do"].dtype)
    answer = run(implementation, changed(problem, do=do, dfinal_state=np.zeros_like(x["dfinal_state"])), RANKS)
    assert answer.failures == {}
    for quantity in GRADIENTS:
        gradient = whole(answer, quantity)
        if quantity == "dh0":
            assert not gradient.any()
        else:
            assert not gradient[~mine].any(), quantity
            assert gradient[mine].any(), quantity


@pytest.mark.gate
@pytest.mark.ranks(RANKS)
@each_implementation
def test_what_stands_in_other_documents_moves_no_bit(implementation, problem):
    """Values of all others a thousand times as large, and keys and gates of theirs changed too."""
    mine = middle_document()
    x = problem.arguments
    others = {name: np.where(mine[..., None, None], x[name], 1000 * x[name]).astype(x[name].dtype) for name in ("v",)}
    others |= {name: np.where(mine[..., None, None], x[name], -x[name][:, ::-1]) for name in ("q", "k")}
    others["g"] = np.where(mine[..., None], x["g"], x["g"] - 1)
    before = run(implementation, problem, RANKS)
    after = run(implementation, changed(problem, **others, initial_state=3 * x["initial_state"]), RANKS)
    for quantity in ("o", "dq", "dk", "dv", "dbeta"):
        assert np.array_equal(whole(before, quantity)[mine], whole(after, quantity)[mine]), quantity
    assert not np.array_equal(whole(before, "o"), whole(after, "o"))
