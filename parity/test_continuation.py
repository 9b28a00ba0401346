"""Prefill in pieces, and then one token at a time, is one whole run, in units, whatever was in a slot before."""

import pytest

from parity.faults.edits import Edit, edited
from parity.faults.fault import STRUCTURAL
from parity.faults.parts import Seen
from parity.layer.continuation import in_pieces, in_poisoned_slots
from parity.layer.measure import limit_of
from parity.layer.problem import Problem, T
from parity.layer.run import AROUND

# One token, less than the window of the convolution, neither a multiple of the chunk nor less than it.
PIECES = {
    "whole": (T,),
    "pieces": (1, 2, 37, 2, 1, 57),
    "prefill_and_decode": (37,),
    "decode": (),
}
LAYER, DECODE, CONV = "implementations.layer", "implementations.decode", "implementations.causal_conv"
FRESH = (1, 2, 37)


def _check(found):
    wrong = [finding for finding in found.values() if not finding.passes]
    assert not wrong, "\n".join(map(str, wrong))


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
    _check(in_pieces(around, problem, lengths))


@pytest.mark.gate
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", ["chunked"])
def test_a_reused_slot_starts_from_what_it_is_told(name, dtype):
    """All slots hold NaN before."""
    _check(in_poisoned_slots(AROUND[name], Problem("typical", dtype, fresh=True), FRESH))


# Mistakes that must be seen


@pytest.fixture
def wrong(request, record_mistake):
    """Names of what is wrong, each by far; the mistake stands in the table by the test's name."""

    def of(found):
        name = request.node.callspec.id if hasattr(request.node, "callspec") else request.node.name[len("test_") :]
        record_mistake(Seen("decoding", name, "f64", limit_of("f64").units, {n: x.units for n, x in found.items()}))
        return _wrong(found)

    return of


def _wrong(found):
    """Names of what is wrong, each by far."""
    limit = limit_of("f64").units
    wrong = {name for name, finding in found.items() if not finding.passes}
    assert all(found[name].units > STRUCTURAL * limit for name in wrong)
    return wrong


EVERY = {"y", "final_recurrent_state", *(f"final_conv_state_{name}" for name in "qkv")}
PROBLEM = Problem("typical", "f64")


@pytest.mark.faults
def test_a_stale_slot_is_seen(wrong):
    stale = edited(f"{DECODE}:in_slots", Edit(DECODE, "jnp.where(told, held, 0)", "held"))
    fresh = Problem("typical", "f64", fresh=True)
    found = in_poisoned_slots(AROUND["chunked"], fresh, FRESH, stale)
    assert wrong(found) == {"y", "final_recurrent_state"}


@pytest.mark.faults
def test_a_slot_that_is_always_taken_for_new_is_seen(wrong):
    forgetful = edited(f"{DECODE}:in_slots", Edit(DECODE, "jnp.where(told, held, 0)", "jnp.zeros_like(held)"))
    fresh = Problem("typical", "f64", fresh=True)
    assert wrong(in_poisoned_slots(AROUND["chunked"], fresh, FRESH, forgetful)) == EVERY


STEPS = {
    "conv_state_off_by_one": (
        (Edit(CONV, "of_last_document(tokens[:, x.shape[1] :]", "of_last_document(tokens[:, x.shape[1] - 1 : -1]"),),
        EVERY,
    ),
    "conv_state_not_handed_over": (
        (Edit(DECODE, "return y[:, 0], conv, recurrent", "return y[:, 0], conv_state, recurrent"),),
        EVERY,
    ),
    "recurrent_state_not_handed_over": (
        (Edit(DECODE, "return y[:, 0], conv, recurrent", "return y[:, 0], conv, recurrent_state"),),
        {"y", "final_recurrent_state"},
    ),
    "recurrent_state_in_bf16": (
        (
            Edit(
                DECODE,
                "return y[:, 0], conv, recurrent",
                "return y[:, 0], conv, jax.lax.reduce_precision(recurrent, 8, 7)",
            ),
        ),
        {"y", "final_recurrent_state"},
    ),
}


@pytest.mark.faults
@pytest.mark.parametrize("mistake", STEPS)
def test_a_mistake_of_a_step_is_seen(mistake, wrong):
    edits, expected = STEPS[mistake]
    found = in_pieces(AROUND["chunked"], PROBLEM, (37,), edited(f"{DECODE}:step", *edits))
    assert wrong(found) == expected
