"""Right code passes; wrong code fails on the rank, in the quantity and at the element where it is wrong."""

from datetime import date
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from implementations.chunked import chunked
from implementations.context_parallel.two_phase import two_phase
from implementations.contract import FEATURES, Implementation
from oracles.gated_delta_rule import GRADIENTS, OUTPUTS, QUANTITIES
from parity import verdict as verdicts
from parity.matrix import Case
from parity.meshes import MeshTooLarge
from parity.problem import Problem
from parity.shapes import RAGGED, SHORT
from parity.tolerances import limits as tolerances
from parity.tolerances.limits import Row, Table
from parity.tolerances.selector import Selector
from parity.verdict import Finding, judge

TYPICAL = Problem("typical", SHORT, "f64")
WITHOUT_GRADIENTS = FEATURES - {"gradients"}


def changed(edit, function=chunked, **claims):
    """`function` with outputs `edit(o, final_state)`, judged on its outputs alone."""

    def call(*inputs, **keywords):
        return edit(*function(*inputs, **keywords))

    return Implementation("changed", call, supports=WITHOUT_GRADIENTS, **claims)


def changed_gradients(edit):
    """The gradients of the chunked form, as a dict that `edit` may change."""

    def vjp(*arguments, **keywords):
        _, pullback = jax.vjp(lambda *x: chunked(*x, **keywords), *arguments[:6])
        gradients = dict(zip(GRADIENTS, pullback(arguments[6:]), strict=True))
        return tuple((gradients | edit(gradients)).values())

    return Implementation("changed", chunked, vjp=vjp)


def failed(verdict):
    return {key for key, finding in verdict.findings.items() if not finding.passes}


@cache
def right(dtype, regime="typical"):
    return judge(Case(Implementation("right", chunked), Problem(regime, SHORT, dtype), 1))


# Right


def test_the_limit_is_that_of_the_platform_and_of_no_other(monkeypatch):
    tight = Selector({"arithmetic": frozenset({"f32"}), "platform": frozenset({"tpu-v5e"})})
    row = Row("tight", 1e-6, tight, "none", "none", date(2026, 11, 30))
    monkeypatch.setattr(tolerances, "limits", lambda: Table(tolerances.load(tolerances.LIMITS).base, (row,)))
    case = Case(Implementation("right", chunked), Problem("typical", SHORT, "f32"), 1)
    for platform, passes in {"tpu-v5e": False, "tpu-v6e": True, None: True}.items():
        monkeypatch.setattr(verdicts, "current", lambda platform=platform: platform)
        found = judge.__wrapped__(case)
        assert (found.passes, found.findings[0, "dk"].limit_row) == (passes, "f32" if passes else "tight")


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
def test_right_code_passes(dtype):
    verdict = right(dtype)
    assert verdict.passes
    assert verdict.findings.keys() == {(0, quantity) for quantity in QUANTITIES}
    for (rank, quantity), finding in verdict.findings.items():
        assert (finding.rank, finding.quantity, finding.failure) == (rank, quantity, None)
        assert 0 < finding.worst_units <= finding.limit
        assert finding.units.shape == (2, 1, 2 if quantity in ("dq", "dk") else 6)
        assert 0 < finding.relative_error < {"f64": 1e-13, "f32": 1e-5, "bf16": 0.01}[dtype]
        assert verdict.worst_units(quantity) == finding.worst_units


def test_what_is_exact_is_exact():
    verdict = right("f32", "orthogonal_write")
    assert verdict.passes
    assert all(finding.worst_units == 0 for finding in verdict.findings.values())


def test_who_claims_bf16_is_held_to_the_unit_where_others_are_exact():
    """A sum of integers leaves the eight bits of bf16: one ulp of it is no mistake there."""

    def edit(o, final_state):
        return o, final_state * (1 + 2.0**-9)

    problem = Problem("orthogonal_write", SHORT, "bf16")
    assert judge(Case(changed(edit, arithmetic={"bf16": "bf16"}), problem, 1)).passes
    assert failed(judge(Case(changed(edit), problem, 1))) == {(0, "final_state")}


def test_one_ulp_is_not_exact():
    def edit(o, final_state):
        return o, final_state.at[0, 0, 0, 0].set(jnp.nextafter(final_state[0, 0, 0, 0], jnp.inf))

    verdict = judge(Case(changed(edit), Problem("orthogonal_write", SHORT, "f32"), 1))
    assert failed(verdict) == {(0, "final_state")}
    assert verdict.worst_units("final_state") == np.inf


def test_the_limit_itself_passes_and_what_was_not_measured_does_not():
    at, over, right = (np.full((1, 1, 1), x) for x in (32.0, np.nextafter(32.0, 33.0), 0.0))
    assert Finding(0, "o", at, 32.0, "f64", 0.0, None).passes
    assert not Finding(0, "o", over, 32.0, "f64", 0.0, None).passes
    assert not Finding(0, "o", right, 32.0, "f64", 0.0, None, failure="no such kernel").passes


def test_the_limit_is_that_of_the_coarser_of_arithmetic_and_output():
    limits = {quantity: finding.limit for (_, quantity), finding in right("bf16").findings.items()}
    assert {limits[quantity] for quantity in ("o", "dq", "dk", "dv")} == {2.0}
    assert {limits[quantity] for quantity in ("final_state", "dg", "dbeta", "dh0")} == {32.0}


def test_a_case_is_run_once():
    calls = []

    def call(q, k, v, g, beta, initial_state, *, scale, chunk_size):
        calls.append(v.shape)
        return v, initial_state

    counted = Implementation("counted", call, supports=WITHOUT_GRADIENTS, traceable=False)
    assert judge(Case(counted, TYPICAL, 1)) is judge(Case(counted, Problem("typical", SHORT, "f64"), 1))
    assert len(calls) == 1


def test_a_mesh_that_is_too_large_is_no_verdict():
    with pytest.raises(MeshTooLarge):
        judge(Case(changed(lambda *x: x, two_phase, context_parallel=True), TYPICAL, 64))


# Wrong


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
def test_one_percent_is_wrong(dtype):
    verdict = judge(Case(changed(lambda o, h: ((o * 1.01).astype(o.dtype), h)), Problem("typical", SHORT, dtype), 1))
    assert not verdict.passes
    assert failed(verdict) == {(0, "o")}
    assert verdict.findings[0, "o"].relative_error == pytest.approx(0.01, rel=0.3 if dtype == "bf16" else 1e-3)
    assert verdict.findings.keys() == {(0, quantity) for quantity in OUTPUTS}


@pytest.mark.parametrize(
    "edit", [lambda o, h: (0 * o, h), lambda o, h: (-o, h), lambda o, h: (o[:, ::-1], h), lambda o, h: (o[::-1], h)]
)
def test_zeros_a_sign_and_an_exchange_of_tokens_or_rows_are_wrong(edit):
    assert failed(judge(Case(changed(edit), Problem("typical", SHORT, "bf16"), 1))) == {(0, "o")}


@pytest.mark.parametrize("wrong_under_vjp", [True, False])
def test_the_worse_of_the_two_forwards_of_a_custom_vjp_counts(wrong_under_vjp):
    def call(*inputs, **keywords):
        def times(factor, outputs):
            return factor * outputs[0], outputs[1]

        @jax.custom_vjp
        def rule(*x):
            return times(1.0 if wrong_under_vjp else 1.01, chunked(*x, **keywords))

        def forward(*x):
            outputs, pullback = jax.vjp(lambda *y: chunked(*y, **keywords), *x)
            return times(1.01 if wrong_under_vjp else 1.0, outputs), pullback

        rule.defvjp(forward, lambda pullback, cotangents: pullback(cotangents))
        return rule(*inputs)

    verdict = judge(Case(Implementation("changed", call), TYPICAL, 1))
    assert failed(verdict) == {(0, "o")}
    assert verdict.findings[0, "o"].relative_error == pytest.approx(0.01, rel=1e-3)


class WithoutCotangents(Problem):
    """All gradients are 0."""

    @property
    def arguments(self):
        return {name: 0 * x if name in ("do", "dfinal_state") else x for name, x in super().arguments.items()}


def test_where_the_truth_is_zero_nothing_else_is_right():
    problem = WithoutCotangents("typical", SHORT, "f64")
    right = judge(Case(Implementation("right", chunked), problem, 1))
    assert right.passes
    assert {right.findings[0, quantity].relative_error for quantity in GRADIENTS} == {0.0}
    wrong = judge(Case(changed_gradients(lambda x: {"dk": x["dk"].at[0, 0, 0, 0].add(1e-30)}), problem, 1))
    assert failed(wrong) == {(0, "dk")}
    assert wrong.findings[0, "dk"].relative_error == np.inf


@pytest.mark.filterwarnings("error")
def test_what_is_off_by_more_than_its_square_can_hold_is_a_number_too():
    finding = judge(Case(changed(lambda o, h: (1e200 + o, h)), TYPICAL, 1)).findings[0, "o"]
    assert not finding.passes
    assert finding.relative_error == np.inf


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_found_among_what_is_only_wrong(bad):
    def edit(o, final_state):
        return o.at[1, 2, 3, 4].add(1e6).at[1, 5, 3, 7].set(bad), final_state

    finding = judge(Case(changed(edit), TYPICAL, 1)).findings[0, "o"]
    assert not finding.passes
    assert finding.worst_units == np.inf
    assert finding.relative_error == np.inf
    assert finding.worst.index == (1, 5, 3, 7)
    assert not np.isfinite(finding.worst.got)


def test_the_worst_element_is_in_the_worst_block():
    """Both blocks are infinitely far off; the first is named, and no element of the next one."""

    def edit(o, final_state):
        return o.at[0, 10, 2, 3].set(1e307).at[0, 70, 2, 3].set(np.nan), final_state

    finding = judge(Case(changed(edit), Problem("typical", RAGGED, "f64"), 1)).findings[0, "o"]
    assert np.argwhere(np.isinf(finding.units)).tolist() == [[0, 0, 2], [0, 1, 2]]
    assert finding.worst.index == (0, 10, 2, 3)


def test_the_worst_element_is_named_by_its_place_in_the_whole_sequence():
    """Token 240 is token 76 of rank 2, in its second block; a smaller error elsewhere does not hide it."""

    def edit(o, final_state):
        return o.at[1, 240, 4, 17].add(1e-3).at[0, 164, 2, 3].add(1e-7), final_state.at[1, 5, 3, 20].add(-1e-3)

    wrong = changed(edit, two_phase, context_parallel=True)
    verdict = judge(Case(wrong, Problem("typical", RAGGED, "f64"), 4))
    assert failed(verdict) == {(2, "o"), *((rank, "final_state") for rank in range(4))}
    o, state = verdict.findings[2, "o"], verdict.findings[1, "final_state"]
    assert verdict.worst_units("o") == o.worst_units > o.limit
    assert o.worst.index == (1, 240, 4, 17)
    assert o.worst.got - o.worst.want == pytest.approx(1e-3)
    assert np.argwhere(o.units > o.limit).tolist() == [[0, 0, 2], [1, 1, 4]]
    assert state.worst.index == (1, 5, 3, 20)
    assert state.worst.got - state.worst.want == pytest.approx(-1e-3)


def test_the_worst_element_of_a_gradient_has_the_index_of_its_array():
    places = {"dq": (0, 6, 1, 15), "dv": (1, 0, 5, 23), "dg": (1, 7, 4), "dbeta": (0, 3, 0), "dh0": (1, 2, 15, 9)}
    wrong = changed_gradients(
        lambda x: {quantity: x[quantity].at[index].add(1e-2) for quantity, index in places.items()}
    )
    verdict = judge(Case(wrong, TYPICAL, 1))
    assert failed(verdict) == {(0, quantity) for quantity in places}
    for quantity, index in places.items():
        worst = verdict.findings[0, quantity].worst
        assert worst.index == index
        assert worst.got - worst.want == pytest.approx(1e-2)


def test_ranks_that_disagree_on_the_final_state_are_seen():
    """Every rank should return the same; two of them do not, and the array as a whole may be the copy of another."""

    def call(*inputs, mesh, axes, **keywords):
        o, final_state = two_phase(*inputs, mesh=mesh, axes=axes, **keywords)

        def disagree(h):
            return h * (1 + 1e-3 * (jax.lax.axis_index(axes) % 3 == 1))

        everywhere = PartitionSpec()
        split = jax.shard_map(disagree, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False)
        return o, split(final_state)

    wrong = Implementation("changed", call, supports=WITHOUT_GRADIENTS, context_parallel=True)
    assert failed(judge(Case(wrong, TYPICAL, 8))) == {(rank, "final_state") for rank in (1, 4, 7)}


def test_what_could_not_be_measured_is_an_infinite_failure_that_says_why():
    def refuse(gradients):
        raise NotImplementedError("no backward")

    verdict = judge(Case(changed_gradients(refuse), TYPICAL, 1))
    assert failed(verdict) == {(0, quantity) for quantity in GRADIENTS}
    finding = verdict.findings[0, "dk"]
    assert finding.failure.startswith("NotImplementedError: no backward")
    assert finding.worst is None
    assert finding.units.tolist() == [[[np.inf]]]
    assert verdict.worst_units("dk") == finding.worst_units == finding.relative_error == np.inf
    assert verdict.findings[0, "o"].passes
    assert not verdict.passes
