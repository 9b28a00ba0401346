"""Prefill in pieces, and then one token at a time, is one whole run, in units, whatever was in a slot before."""

from functools import partial

import pytest

from parity.faults.fault import STRUCTURAL
from parity.faults.parts import Seen
from parity.layer.continuation import in_pieces, in_poisoned_slots
from parity.layer.decode_mistakes import MISTAKES, planted, resembling
from parity.layer.measure import judged, limit_of
from parity.layer.problem import Problem, T
from parity.layer.run import AROUND

# One token, less than the window of the convolution, neither a multiple of the chunk nor less than it.
PIECES = {
    "whole": (T,),
    "pieces": (1, 2, 37, 2, 1, 57),
    "prefill_and_decode": (37,),
    "decode": (),
}
FRESH = (1, 2, 37)


def _check(problem, target, ask):
    """What `ask()` answers; where that is wrong, `ask(planted)` is what a mistake in `target` would answer."""
    pieces = ask()
    wrong = [finding for finding in judged(problem, pieces).values() if not finding.passes]
    if wrong:
        named = [f"the same values as where {x.cause} ({x.name})" for x in resembling(problem, pieces, target, ask)]
        pytest.fail("\n".join([*map(str, wrong), *(named or ["none of the known mistakes of decoding"])]))


def cases(pieces):
    return pytest.mark.parametrize(
        ("around", "problem", "lengths", "dtype"),  # the last is for a TPU, to say what it cannot do
        [
            pytest.param(
                AROUND[name], Problem(regime, dtype), PIECES[how], dtype, id=f"{name}-{dtype}-{how}_in_{regime}-three"
            )
            for name, dtype in (("chunked", "f64"), ("chunked", "f32"), ("chunked", "bf16"), ("sequential", "f32"))
            for regime in ("typical", "long_memory")
            for how in pieces
        ],
    )


@pytest.mark.gate
@cases(PIECES)
def test_a_sequence_in_pieces_is_within_the_limits_of_the_whole(around, problem, lengths, dtype):
    _check(problem, "step", partial(in_pieces, around, problem, lengths))


@pytest.mark.gate
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", ["chunked"])
def test_a_reused_slot_starts_from_what_it_is_told(name, dtype):
    """All slots hold NaN before."""
    problem = Problem("typical", dtype, fresh=True)
    _check(problem, "in_slots", partial(in_poisoned_slots, AROUND[name], problem, FRESH))


# Mistakes that must be seen


def _with(mistake, around=AROUND["chunked"], regime="typical", dtype="f64"):
    """The problem, and what it is asked by."""
    if mistake.target == "step":
        problem = Problem(regime, dtype)
        return problem, partial(in_pieces, around, problem, PIECES["prefill_and_decode"])
    problem = Problem(regime, dtype, fresh=True)
    return problem, partial(in_poisoned_slots, around, problem, FRESH)


@pytest.mark.faults
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_seen(mistake, record_mistake):
    problem, ask = _with(mistake)
    found, limit = judged(problem, ask(planted(mistake))), limit_of("f64").units
    record_mistake(Seen("decoding", mistake.name, "f64", limit, {name: x.units for name, x in found.items()}))
    wrong = {name for name, finding in found.items() if not finding.passes}
    assert wrong == set(mistake.wrong)
    assert all(found[name].units > STRUCTURAL * limit for name in wrong)


@pytest.mark.faults
@pytest.mark.parametrize("name", sorted({*MISTAKES} - {"recurrent_state_in_bf16"}))
def test_a_failure_names_the_mistake_that_it_is(name):
    """In another regime and dtype, around another rule, than those that it was tried in. (Which elements of a rounded
    state fall to the other side is a matter of the code around.)
    """
    mistake = MISTAKES[name]
    problem, ask = _with(mistake, AROUND["sequential"], "long_memory", "f32")
    named = resembling(
        problem, ask(planted(mistake)), mistake.target, _with(mistake, regime="long_memory", dtype="f32")[1]
    )
    assert [x.name for x in named] == [mistake.name]


@pytest.mark.faults
def test_a_failure_is_a_message():
    stale = MISTAKES["stale_slot"]
    problem, ask = _with(stale)

    def wrong_unless_told(table=None):
        return ask(table or planted(stale))

    with pytest.raises(
        pytest.fail.Exception, match=r"y row 0, .*inf units, limit 32(.|\n)*\nthe same values as where .*\(stale_slot\)"
    ):
        _check(problem, "in_slots", wrong_unless_told)
