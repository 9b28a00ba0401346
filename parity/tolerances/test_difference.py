"""Two ledgers compared: what moved, and what counts as worse."""

from parity.tolerances.difference import MOST_GROWTH_OF_MAX, MOST_GROWTH_OF_RMS, as_text, changes, near_their_limit
from parity.tolerances.ledger import Ledger, Observation
from parity.tolerances.limits import limits


def ledger(**observed):
    """Quantity -> (max, rms), of one implementation in f64."""
    return Ledger(
        {},
        {
            ("mine", "f64", quantity): Observation("f64", most, rms, "", 1, {"typical": most})
            for quantity, (most, rms) in observed.items()
        },
    )


def worse(before, after):
    return {change.key[2]: change.worse for change in changes(before, after) if change.worse}


def test_what_fresh_draws_do_is_not_worse():
    before = ledger(o=(2.0, 1.0), dk=(2.0, 1.0))
    assert worse(before, ledger(o=(2.0 * MOST_GROWTH_OF_MAX, 1.0 * MOST_GROWTH_OF_RMS), dk=(0.1, 0.1))) == {}


def test_what_grew_beyond_that_is():
    before = ledger(o=(2.0, 1.0), dk=(2.0, 1.0), dv=(2.0, 1.0))
    after = ledger(o=(2.01 * MOST_GROWTH_OF_MAX, 1.0), dk=(2.0, 1.01 * MOST_GROWTH_OF_RMS), dv=(2.0, 1.0))
    assert worse(before, after) == {
        "o": f"max grew more than {MOST_GROWTH_OF_MAX:g} times",
        "dk": f"rms grew more than {MOST_GROWTH_OF_RMS:g} times",
    }


def test_growth_from_zero_is_worse():
    assert worse(ledger(o=(0.0, 0.0)), ledger(o=(0.1, 0.1))).keys() == {"o"}
    assert worse(ledger(o=(0.0, 0.0)), ledger(o=(0.0, 0.0))) == {}


def test_an_entry_that_vanished_is_worse_and_a_new_one_is_not():
    assert worse(ledger(o=(2.0, 1.0)), ledger(dk=(2.0, 1.0))) == {"o": "it is gone"}


def test_without_a_ledger_before_nothing_is_worse():
    assert worse(None, ledger(o=(30.0, 20.0))) == {}


def test_what_is_near_its_limit_is_named():
    limit = limits().base["f64"].units
    assert near_their_limit(limits(), "cpu", ledger(o=(limit / 2, 1.0))) == []
    (text,) = near_their_limit(limits(), "cpu", ledger(o=(limit / 1.9, 1.0), dk=(1.0, 1.0)))
    assert text.startswith("mine-f64-o in typical: ")
    assert f"2 times below the limit {limit:g} of row f64" in text


def test_the_table_shows_before_after_and_ratio():
    text = as_text(changes(ledger(o=(2.0, 1.0), dk=(2.0, 1.0)), ledger(o=(9.0, 1.1), dv=(1.0, 1.0))))
    lines = {line.split()[0]: " ".join(line.split()) for line in text.splitlines()}
    assert lines["mine-f64-o"] == "mine-f64-o 2 9 4.50 1 1.1 1.10 WORSE: max grew more than 4 times"
    assert lines["mine-f64-dk"] == "mine-f64-dk 2 - - 1 - - WORSE: it is gone"
    assert lines["mine-f64-dv"] == "mine-f64-dv - 1 - - 1 -"
