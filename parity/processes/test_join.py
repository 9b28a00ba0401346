"""What several processes hold becomes one answer: every element once, and no two copies that differ."""

import jax.numpy as jnp
import numpy as np
import pytest

from parity.processes.join import joined
from parity.run import Answer

NAN, OTHER_NAN = (np.array([bits], "u8").view("f8")[0] for bits in (0x7FF8000000000000, 0x7FF8000000000001))


def held(values, mask=False):
    return np.ma.MaskedArray(np.array(values), mask=mask)


def answer(failures=(), **pieces):
    return Answer(pieces, dict(failures), {})


def test_every_element_is_taken_from_a_process_that_holds_it():
    one = answer(o=[held([1.0, 0.0], [False, True]), held([0.0, 0.0], True)])
    other = answer(o=[held([0.0, 2.0], [True, False]), held([3.0, 4.0])])
    found = joined([one, other])
    assert not found.failures
    assert [piece.tolist() for piece in found.pieces["o"]] == [[1.0, 2.0], [3.0, 4.0]]
    assert not any(isinstance(piece, np.ma.MaskedArray) for piece in found.pieces["o"])


def test_of_a_state_a_rank_has_its_own_copy_and_what_it_does_not_hold_from_others():
    one = answer(final_state=[held([1.0, 2.0]), held([0.0, 0.0], True)])
    other = answer(final_state=[held([0.0, 0.0], True), held([-1.0, 0.0], [False, True])])
    found = joined([one, other])
    assert not found.failures
    assert [piece.tolist() for piece in found.pieces["final_state"]] == [[1.0, 2.0], [-1.0, 2.0]]


@pytest.mark.parametrize("copies", [(1.0, -1.0), (0.0, -0.0), (NAN, 1.0), (NAN, OTHER_NAN)], ids=str)
def test_copies_of_other_bits_are_named(copies):
    parts = [answer(o=[held([1.0]), held([copy])]) for copy in (copies[0], *copies)]
    assert joined(parts).failures == {
        "o": "o: devices that hold the same tokens of it do not agree: "
        "those of processes 0 and 2 on rank 1; those of processes 1 and 2 on rank 1"
    }
    assert joined(parts).pieces == {}


@pytest.mark.parametrize("dtype", ["float64", "float32", jnp.bfloat16], ids=str)
def test_copies_of_the_same_bits_agree(dtype):
    values = np.array([1.0, NAN, -0.0, np.inf]).astype(dtype)
    found = joined([answer(o=[held(values)]), answer(o=[held(values)])])
    assert not found.failures
    assert found.pieces["o"][0].tobytes() == values.tobytes()


def test_copies_in_the_forward_of_the_vjp_count_too():
    parts = [Answer({"o": [held([1.0])]}, {}, {"o": [held([x])]}) for x in (1.0, 2.0)]
    found = joined(parts)
    assert list(found.failures) == ["o"]
    assert found.pieces == found.in_vjp == {}


def test_what_no_process_holds_is_not_measured():
    found = joined([answer(o=[held([1.0, 0.0], [False, True])])] * 2)
    assert found.failures == {"o": "o: no process holds all of it"}


def test_a_failure_of_one_process_is_said_to_be_its_own():
    found = joined([answer(o=[held([1.0])], dq=[held([1.0])]), answer({"o": "wrong"}, dq=[held([1.0])])])
    assert found.failures == {"o": "in process 1: wrong"}
    assert list(found.pieces) == ["dq"]
    assert joined([answer({"o": "wrong"})] * 2).failures == {"o": "wrong"}
