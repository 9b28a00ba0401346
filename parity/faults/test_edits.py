"""Edits of source: exactly where they say, and nothing else in the process is touched."""

import sys
import traceback

import jax.numpy as jnp
import pytest

import implementations
from implementations.contract import Implementation
from parity.faults.edits import Edit, edited, is_within

CHUNKED = "implementations.chunked:chunked"
TWO_PHASE = "implementations.context_parallel.two_phase:two_phase"
STEP = Edit("implementations.chunked", "chunk.k_decayed, written), o", "chunk.k_decayed, chunk.u), o")
SOLVE = "implementations.ut_inversion.substitution"
DEEP = Edit(SOLVE, "unit_diagonal=True", "unit_diagonal=False")


def modules():
    return {name: module for name, module in sys.modules.items() if name.startswith("implementations")}


def globals_of(function):
    return function.__globals__


def test_an_edited_module_is_another_and_the_rest_is_shared():
    function = edited(CHUNKED, STEP)
    original = sys.modules["implementations.chunked"]
    assert function is not original.chunked
    assert globals_of(function)["chunk_step"] is not original.chunk_step
    assert globals_of(function)["substitution"] is original.substitution
    assert globals_of(function)["Implementation"] is Implementation


def test_what_stands_between_an_edit_and_the_target_is_made_anew():
    function = edited(TWO_PHASE, DEEP)
    original = sys.modules["implementations.context_parallel.two_phase"]
    for name in ("prepare", "fold"):
        assert globals_of(function)[name] is not getattr(original, name)
    assert globals_of(function)["all_gather_prefix"] is not original.all_gather_prefix  # it imports the affine map
    assert globals_of(globals_of(function)["prepare"])["einsum"] is sys.modules["implementations.arithmetic"].einsum


def test_sys_modules_and_packages_are_as_before():
    before, attributes = modules(), dict(vars(implementations))
    edited(TWO_PHASE, DEEP, STEP)
    assert modules() == before
    assert vars(implementations) == attributes


def test_and_after_an_edit_that_raises():
    before, attributes = modules(), dict(vars(implementations))
    raises = Edit(SOLVE, "import jax\n", "import jax\nraise RuntimeError('here')\n")
    with pytest.raises(RuntimeError, match="here") as raised:
        edited(CHUNKED, raises)
    assert modules() == before
    assert vars(implementations) == attributes
    assert "raise RuntimeError('here')" in "".join(traceback.format_exception(raised.value))  # the edited line


def test_a_traceback_shows_the_edited_source():
    fails = Edit("implementations.chunked", "G = jnp.cumsum(g, axis=-1)", "G = jnp.cumsum(g, axis=99)  # edited")
    x = jnp.zeros((1, 2, 1, 2))
    with pytest.raises(ValueError, match="99") as raised:
        edited(CHUNKED, fails)(x, x, x, x[..., 0], x[..., 0], jnp.zeros((1, 1, 2, 2)), chunk_size=2)
    assert "G = jnp.cumsum(g, axis=99)  # edited" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(("old", "count"), [("no such line", "0"), ("einsum(", r"\d+")])
def test_what_does_not_stand_there_exactly_once_is_refused(old, count):
    with pytest.raises(ValueError, match=rf"implementations.chunked must hold exactly once .*it holds {count} times"):
        edited(CHUNKED, Edit("implementations.chunked", old, "x"))


def test_edits_of_one_module_are_made_in_order():
    again = Edit("implementations.chunked", "chunk.k_decayed, chunk.u), o", "chunk.k_decayed, 2 * chunk.u), o")
    assert edited(CHUNKED, STEP, again) is not None
    with pytest.raises(ValueError, match="holds 0 times"):
        edited(CHUNKED, again, STEP)


def test_an_edit_that_the_target_is_not_made_of_is_refused():
    elsewhere = Edit("implementations.sequential", "jnp.exp(g)", "g")
    with pytest.raises(ValueError, match=r"chunked:chunked does not import implementations\.sequential"):
        edited(CHUNKED, elsewhere)
    assert not is_within(CHUNKED, elsewhere)
    assert is_within(TWO_PHASE, DEEP, STEP)
