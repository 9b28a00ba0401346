"""Every kind of loosening is seen, and what is not one is not."""

import copy

import pytest

from parity.tolerances.loosening import MOST_SHOWN, Loosening, few, loosenings

DEVIATION = {"where": "a.toml: expected 1", "kind": "deviation", "axes": {"quantity": ["dk"]}, "units": [40.0, 50.0]}
FACTS = {
    "larger is looser": {"cap of f64": 64.0},
    "smaller is looser": {"least headroom": 2.0},
    "limits": {
        f"{implementation} f64 f64 {quantity} {regime} {platform}": [32.0, "f64"]
        for implementation in ("ours", "any_other")
        for quantity in ("o", "dk")
        for regime in ("typical", "any_other")
        for platform in ("cpu", "any_other")
    },
    "claims": {"ours bf16": "f32"},
    "items": ["a", "b"],
    "collected": ["test_forward[a]", "test_forward[b]"],
    "null models": ["zeros"],
    "faults": {
        "lost": {
            "quantity": "o",
            "regimes": ["typical", "tiny_keys"],
            "margin": 1000.0,
            "dtype": "f64",
            "ranks": 4,
            "right": ["dq"],
        }
    },
    "expected": [DEVIATION],
    "probes": [
        {"name": "scaled o", "problem": "123", "passes": False, "shares": [10.0, 20.0]},
        {"name": "exact o", "problem": "123", "passes": False, "shares": [float("inf"), 0.0]},
    ],
}


def changed(**edits):
    """`FACTS` with each edit, a function of a part, applied to the part of that name (`_` for a space)."""
    facts = copy.deepcopy(FACTS)
    for name, edit in edits.items():
        edit(facts[name.replace("_", " ")])
    return facts


def only(after, before=FACTS):
    (found,) = loosenings(before, after)
    return found


def at(*words):
    return lambda limits: [limits.update({p: [units, row]}) for p in list(limits) for q, units, row in words if q in p]


def test_nothing_is_looser_than_itself():
    assert loosenings(FACTS, copy.deepcopy(FACTS)) == []


@pytest.mark.parametrize(
    "stricter",
    [
        changed(limits=at(("ours", 8.0, "tight"))),
        changed(larger_is_looser=lambda x: x.update({"cap of f64": 50.0, "new": 3.0})),
        changed(smaller_is_looser=lambda x: x.update({"least headroom": 3.0})),
        changed(claims=lambda x: x.update({"ours bf16": "f64", "theirs bf16": "bf16"})),
        changed(items=lambda x: x.append("c"), collected=lambda x: x.insert(0, "new")),
        changed(
            faults=lambda x: x["lost"].update(margin=2000.0, right=["dq", "dk"], regimes=["typical", "tiny_keys", "x"])
        ),
        changed(faults=lambda x: x.update(another=x["lost"])),
        changed(expected=lambda x: x.clear()),
        changed(expected=lambda x: x[0].update(units=[42.0, 45.0])),
        changed(probes=lambda x: x[0].update(shares=[11.0, 20.0])),
        changed(probes=lambda x: x[0].update(shares=[10.0 * (1 - 1e-12), 20.0])),
        changed(probes=lambda x: x[0].update(shares=[10.0, 10.0, 20.0])),
    ],
)
def test_what_is_stricter_or_new_is_no_loosening(stricter):
    assert loosenings(FACTS, stricter) == []


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (
            changed(larger_is_looser=lambda x: x.update({"cap of f64": 65.0})),
            Loosening("constant", "cap of f64", "64", "65"),
        ),
        (
            changed(smaller_is_looser=lambda x: x.update({"least headroom": 1.5})),
            Loosening("constant", "least headroom", "2", "1.5"),
        ),
        (changed(larger_is_looser=lambda x: x.clear()), Loosening("constant", "cap of f64", "64", "gone")),
        (changed(claims=lambda x: x.update({"ours bf16": "bf16"})), Loosening("claim", "ours bf16", "f32", "bf16")),
        (changed(claims=lambda x: x.clear()), Loosening("claim", "ours bf16", "f32", "gone")),
        (changed(items=lambda x: x.remove("b")), Loosening("judged item", "b", "there", "gone")),
        (
            changed(collected=lambda x: x.remove("test_forward[b]")),
            Loosening("test of the gate", "test_forward[b]", "there", "gone"),
        ),
        (changed(null_models=lambda x: x.clear()), Loosening("null model", "zeros", "there", "gone")),
        (changed(faults=lambda x: x.clear()), Loosening("fault", "lost", "there", "gone")),
        (
            changed(faults=lambda x: x["lost"].update(margin=100.0)),
            Loosening("fault", "lost: margin", "1000", "100"),
        ),
        (
            changed(faults=lambda x: x["lost"].update(regimes=["typical"])),
            Loosening("fault", "lost: regimes", "tiny_keys", "gone"),
        ),
        (changed(faults=lambda x: x["lost"].update(right=[])), Loosening("fault", "lost: right", "dq", "gone")),
        (changed(faults=lambda x: x["lost"].update(quantity="dk")), Loosening("fault", "lost: quantity", "o", "dk")),
        (changed(faults=lambda x: x["lost"].update(dtype="bf16")), Loosening("fault", "lost: dtype", "f64", "bf16")),
        (changed(faults=lambda x: x["lost"].update(ranks=2)), Loosening("fault", "lost: ranks", "4", "2")),
        (changed(probes=lambda x: x.pop()), Loosening("measure", "exact o", "asked", "gone")),
        (
            changed(probes=lambda x: x[0].update(passes=True)),
            Loosening("measure", "scaled o", "it fails", "it passes"),
        ),
        (
            changed(probes=lambda x: x[0].update(shares=[9.0, 5.0])),
            Loosening("measure", "scaled o", "20 limits", "5 limits"),
        ),
        (
            changed(probes=lambda x: x[1].update(shares=[7.0, 0.0])),
            Loosening("measure", "exact o", "inf limits", "7 limits"),
        ),
        (
            changed(probes=lambda x: x[0].update(shares=[20.0])),
            Loosening("measure", "scaled o", "2 rows, blocks and heads", "1"),
        ),
        (
            changed(probes=lambda x: x[0].update(problem="456", shares=[1.0, 1.0])),
            Loosening("measure", "scaled o", "values 123", "456: not comparable"),
        ),
    ],
)
def test_each_kind_of_loosening_is_named_with_before_and_after(after, found):
    assert only(after) == found


# Limits, resolved at every point by both


def test_a_larger_limit_is_named_with_the_rows_that_decide():
    found = only(changed(limits=at((" f64 f64 dk ", 40.0, "wide"))))
    assert (found.before, found.after) == ("32 by row f64", "40 by row wide")
    assert found.what == "8 points, such as ours dk in typical, f64 in f64, on cpu"


def test_a_tighter_row_that_was_deleted_is_a_loosening():
    found = only(FACTS, before=changed(limits=at(("ours", 8.0, "tight"))))
    assert (found.before, found.after) == ("8 by row tight", "32 by row f64")


def test_one_limit_that_is_lower_does_not_pay_for_one_that_is_higher():
    found = only(changed(limits=at((" o ", 1.0, "low"), (" dk tiny", 0.0, ""), (" dk typical cpu", 33.0, "high"))))
    assert found.what.startswith("2 points")


def test_a_new_implementation_is_compared_with_any_other():
    def add(limits):
        limits.update({p.replace("any_other f64", "new f64", 1): [48.0, "new"] for p in list(limits) if p[:3] == "any"})

    found = only(changed(limits=add))
    assert (found.before, found.after) == ("32 by row f64", "48 by row new")
    assert found.what == "8 points, such as new o in typical, f64 in f64, on cpu"


def test_an_implementation_that_is_gone_is_compared_as_any_other():
    def tight(limits):
        limits.update({p.replace("any_other f64", "old f64", 1): [8.0, "old"] for p in list(limits) if p[:3] == "any"})

    found = only(FACTS, before=changed(limits=tight))
    assert (found.before, found.after) == ("8 by row old", "32 by row f64")


# Expectations


def row(kind="xfail", units=None, **axes):
    return {"where": "a.toml: expected 2", "kind": kind, "axes": axes, "units": units}


@pytest.mark.parametrize(
    ("after", "was", "now"),
    [
        ([{**DEVIATION, "units": [40.0, 60.0]}], "of 40 to 50 units", "of 40 to 60 units"),
        ([{**DEVIATION, "units": [35.0, 50.0]}], "of 40 to 50 units", "of 35 to 50 units"),
        ([{**DEVIATION, "kind": "xfail", "units": None}], "deviation of 40", "xfail by"),
        ([{**DEVIATION, "kind": "not_applicable", "units": None}], "deviation of 40", "not_applicable by"),
        ([{**DEVIATION, "axes": {"quantity": ["dk", "dv"]}}], "the limit", "deviation of 40"),
        ([DEVIATION, row(quantity=["o"], regime=["typical"])], "the limit", "xfail by a.toml: expected 2"),
    ],
)
def test_an_expectation_that_forgives_more_is_a_loosening(after, was, now):
    found = only(changed(expected=lambda x: x.__setitem__(slice(None), after)))
    assert found.kind == "expectation"
    assert was in found.before
    assert now in found.after


def test_a_wider_selector_says_where():
    found = only(changed(expected=lambda x: x[0]["axes"].update(quantity=["dk", "o"])))
    assert found.what == "quantity = o"


def test_a_narrower_selector_is_no_loosening():
    assert loosenings(FACTS, changed(expected=lambda x: x[0]["axes"].update(regime=["typical"]))) == []


# What is shown


def test_of_many_the_first_are_shown_and_the_rest_counted():
    many = [Loosening("measure", str(i), "1", "0") for i in range(MOST_SHOWN + 5)] + [Loosening("fault", "x", "", "")]
    shown = few(many)
    assert [x.what for x in shown[-2:]] == ["and 5 more", "x"]
    assert len(shown) == MOST_SHOWN + 2
