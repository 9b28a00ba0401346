"""The comparisons: what one unit is, and that every sum is allowed what its terms are."""

from dataclasses import replace

import numpy as np
import pytest

from parity.properties.evaluate import evaluate, program
from parity.properties.examples import Example
from parity.properties.judge import apart, bits_apart, limit, pair
from parity.properties.results import Result, ask
from parity.properties.sizes import Sizes
from parity.properties.subjects import ORACLE, SUBJECTS, Subject
from parity.tolerances.limits import resolve
from parity.tolerances.platforms import current
from parity.unit import units

U = 2.0**-53
SIZES = Sizes(B=2, T=8, Hk=1, group=2, K=3, V=2, chunk_size=3, other_chunk_size=5, cut=4, ranks=1)
SUBJECT = Subject(ORACLE, "f64")


def result(got, *, want=1.0, kappa=3.0, floor=0.0):
    got = np.asarray(got, dtype=np.float64)
    return Result(got, np.full(got.shape, want), np.full(got.shape, kappa), u_c=U, u_out=U, floor=floor)


def ones(*, off=0.0, tokens=4, size=2):
    return result(np.ones((1, tokens, 2, size)) + off)


def test_two_results_may_differ_by_the_units_of_both():
    assert apart((1.0, ones(off=8 * U)), (-1.0, ones())) == pytest.approx(1)  # one unit is 4 u for each
    assert apart((2.0, ones(off=8 * U)), (-2.0, ones())) == pytest.approx(1)
    assert apart((1.0, ones()), (-1.0, ones())) == 0


def test_the_worst_head_decides():
    got = np.ones((1, 4, 2, 2))
    got[:, :, 1] += 80 * U
    assert apart((1.0, result(got)), (-1.0, ones())) == pytest.approx(10)


def test_what_is_not_finite_is_infinitely_far_off():
    for bad in (np.nan, np.inf):
        assert apart((1.0, ones(off=bad)), (-1.0, ones())) == np.inf
        assert pair(np.ones((1, 4, 2, 2)), ones(off=bad), each_token=True).units == np.inf
        assert bits_apart(np.array([bad]), np.array([1.0])) == np.inf
    assert bits_apart(np.array([np.nan]), np.array([np.nan])) == np.inf
    assert bits_apart(np.array([0.0]), np.array([-0.0])) == 0


def test_where_nothing_may_be_off_the_claim_is_equality():
    exact = result(np.zeros((1, 2, 1, 1)), want=0.0, kappa=0.0, floor=1e-300)
    assert apart((1.0, exact)) == 0
    assert apart((1.0, result(np.full((1, 2, 1, 1), 1e-320), want=0.0, kappa=0.0, floor=1e-300))) == np.inf


@pytest.mark.parametrize("each_token", [False, True])
def test_a_pair_is_allowed_what_an_error_within_the_limit_can_make_of_it(each_token):
    """The worst error of that size is along the weights: it must use up the allowance, and no more."""
    weight = np.array([3.0, -4.0]).reshape(1, 1, 1, 2) * np.ones((1, 4, 2, 1))
    if each_token:
        weight[:, 1:] = 0
    off = weight / np.sqrt(np.mean(weight**2, axis=(1, 3), keepdims=True)) * 32 * 4 * U
    right = pair(weight, ones(), each_token=each_token)
    wrong = pair(weight, result(np.ones(weight.shape) + off), each_token=each_token)
    assert (wrong - right).units == pytest.approx(32 / 2, rel=0.05)  # of two results, one of which errs


def test_groups_are_consecutive_value_heads():
    x = result(np.arange(4.0).reshape(1, 1, 4, 1))
    assert pair(np.ones((1, 1, 4, 1)), x, each_token=True).by_group(2).value.tolist() == [[[1, 5]]]


def test_a_pair_is_made_for_one_block():
    with pytest.raises(ValueError, match="one block of 64 tokens; got 65"):
        pair(np.ones((1, 65, 2, 2)), ones(tokens=65), each_token=True)


def test_one_unit_is_that_of_the_gate():
    run = ask(SUBJECT, Example(SIZES, gates="mixed").arguments("f64"), chunk_size=3, ranks=1)
    for x in run.values():
        moved = x.want + 5 * U * x.kappa
        of_gate = units(moved, x.want, x.kappa, u_c=x.u_c, u_out=x.u_out, floor=x.floor)
        error = Result(moved - x.want, x.want, x.kappa, x.u_c, x.u_out, x.floor)
        assert apart((1.0, error)) == pytest.approx(of_gate.max(), rel=1e-12)


def test_limits_are_those_of_the_gate():
    (chunked,) = (x for x in SUBJECTS if x.name == "chunked-f32")
    by_quantity = {
        q: resolve("f32", implementation="chunked", dtype="f32", quantity=q, regime="drawn", platform=current()).units
        for q in ("o", "dg")
    }
    assert by_quantity["o"] < by_quantity["dg"] == limit(chunked, ("o", "dg"))
    assert by_quantity["o"] == limit(chunked, ("o",))


def test_a_wrong_shape_is_an_error():
    def call(*inputs, scale, chunk_size):
        return inputs[2][..., :1], inputs[5]

    wrong = Subject(replace(ORACLE, call=call), "f64")
    with pytest.raises(ValueError, match=r"o must be float64\[2, 8, 2, 2\], like v; got float64\[2, 8, 2, 1\]"):
        evaluate(wrong, Example(SIZES).arguments("f64"), chunk_size=3, ranks=1)


def test_examples_of_the_same_sizes_share_a_program():
    (subject,) = (x for x in SUBJECTS if x.name == "sequential-f32")
    before = program.cache_info().misses
    for seed in range(3):
        evaluate(subject, Example(SIZES, gates="strong", seed=seed).arguments("f32"), chunk_size=3, ranks=1)
    assert program.cache_info().misses == before + 1
