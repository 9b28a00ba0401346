"""Examples are records: what they are made of, that a line is enough, and what hypothesis may draw."""

import numpy as np
import pytest
from hypothesis import given, settings

from parity.properties.examples import STYLES, Example, examples, parse
from parity.properties.sizes import MOST_RANKS, Sizes, any_sizes, pool

SIZES = Sizes(B=2, T=12, Hk=2, group=3, K=4, V=5, chunk_size=5, other_chunk_size=2, cut=4, ranks=2)


def test_a_line_is_all_there_is_of_an_example():
    given_ = Example(SIZES, gates="spikes", keys="tiny", beta="edges", seed=7)
    assert parse(given_.line()) == given_
    for name, x in parse(given_.line()).arguments("f64").items():
        assert np.array_equal(x, given_.arguments("f64")[name])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("seed", "sead"), r"wrong here: \['sead', 'seed'\]"),
        (('"weak"', '"feeble"'), r"styles are .*got \{'gates': 'feeble'\}"),
        (("cut = 4", "cut = 5"), "multiples of ranks"),
        (("T = 12", "T = 4"), "cut must be below T"),
        (("B = 2", "B = 0"), "every size must be positive"),
        (("B = 2", "B = 2.5"), r"sizes and seed are integers.*got \{'B': 2.5\}"),
        (("B = 2", "B = "), "the inside of an inline table of TOML"),
    ],
)
def test_a_line_that_is_none_says_what_is_wrong(edit, message):
    with pytest.raises(ValueError, match=message):
        parse(Example(SIZES).line().replace(*edit))


@pytest.mark.parametrize(("axis", "style"), [(axis, style) for axis, styles in STYLES.items() for style in styles])
def test_every_style_gives_finite_values_of_its_own(axis, style):
    found = Example(SIZES, **{axis: style}).arguments("f64")
    assert all(np.isfinite(x).all() for x in found.values())
    others = [Example(SIZES, **{axis: other}).arguments("f64") for other in STYLES[axis] if other != style]
    name = {"gates": "g", "keys": "k"}.get(axis, axis)
    assert not any(np.array_equal(found[name], other[name]) for other in others)


def test_styles_are_what_they_say():
    gates, keys, beta = (
        {style: Example(SIZES, **{axis: style}).arguments("f64")[name] for style in STYLES[axis]}
        for axis, name in (("gates", "g"), ("keys", "k"), ("beta", "beta"))
    )
    assert all(np.all(g <= 0) for g in gates.values())
    assert np.all(gates["zeros"] == 0)
    assert np.max(gates["strong"]) <= -1.5
    assert -30 in gates["spikes"]
    assert np.all(keys["repeated"] == keys["repeated"][:, :1])
    assert np.max(np.linalg.norm(keys["tiny"], axis=-1)) <= 2**-4
    assert 0 < np.mean(np.all(keys["zero"] == 0, axis=-1)) < 1
    assert np.min(np.sum(keys["correlated"][:, :1] * keys["correlated"], axis=-1)) > 0.3
    assert {0, 1} <= set(beta["edges"].ravel())
    assert 0 < np.min(beta["inside"]) < np.max(beta["inside"]) < 1 < np.min(beta["above_one"])


@pytest.mark.parametrize("context_parallel", [False, True])
def test_sizes_fit_the_ranks_that_they_meet(context_parallel):
    @settings(max_examples=50, database=None, derandomize=True, deadline=None)
    @given(examples(any_sizes(context_parallel=context_parallel)))
    def check(example):
        sizes = example.sizes
        assert (sizes.ranks > 1) == context_parallel
        assert sizes.T % (MOST_RANKS if context_parallel else 1) == 0
        assert parse(example.line()) == example

    check()


def test_a_pool_is_a_function_of_its_name():
    few, many = (pool("some", count, context_parallel=True) for count in (3, 6))
    assert few == pool("some", 3, context_parallel=True)
    assert set(few) < set(many)
    assert set(many).isdisjoint(pool("other", 6, context_parallel=True))
    assert [x.weight for x in many] == sorted(x.weight for x in many)
