"""The kill table's parts: what stands first, what is counted, and how far what had to fail was over."""

from dataclasses import replace

import pytest

from parity.faults.kills import EVERY_QUANTITY, Kill
from parity.report.documents import Kills, Run
from parity.report.kills import by_fault, over, quantities, reached, tally


@pytest.fixture
def kill(run: Run) -> Kill:
    """`o` at 1 of 32 units and `dq`, which had to fail, far over 32."""
    assert isinstance(run.kills, Kills)
    return run.kills.kills[0]


def test_survivors_stand_first_and_others_as_they_came(kill: Kill) -> None:
    others = [replace(kill, fault=name) for name in ("b", "a")]
    survivor = replace(kill, fault="z", killed=False)
    groups = by_fault([*others, survivor, replace(survivor, fault="y", not_applicable="no gradients"), others[0]])
    assert [(group.fault, len(group.kills), group.survived) for group in groups] == [
        ("z", 1, True),
        ("b", 2, False),
        ("a", 1, False),
        ("y", 1, False),
    ]


def test_one_fault_around_two_implementations_is_two_groups(kill: Kill) -> None:
    groups = by_fault([kill, replace(kill, implementation="mine")])
    assert [group.around for group in groups] == ["", "mine"]


def test_what_must_fail_everywhere_reaches_no_more_than_its_least(kill: Kill) -> None:
    null = replace(kill, must_fail=EVERY_QUANTITY, units={"o": 64.0, "dq": 3200.0})
    assert (null.demanded, reached(null)) == (["o", "dq"], 2.0)
    assert reached(replace(kill, units={})) is None
    assert (over(kill, "o"), over(kill, "dq"), over(kill, "dk")) == (False, True, False)


def test_columns_are_those_of_the_rule_in_its_order(kill: Kill) -> None:
    assert quantities([kill, replace(kill, must_fail="final_state")]) == ["o", "final_state", "dq"]
    assert quantities([replace(kill, must_fail=EVERY_QUANTITY)]) == ["o", "dq"]


def test_everything_is_counted_once(kill: Kill) -> None:
    survivor = replace(kill, killed=False)
    left_out = replace(survivor, fault="other", not_applicable="no gradients")
    assert tally([kill, survivor, left_out]) == "2 faults on 3 problems: 1 killed, 1 SURVIVED, 1 not applicable"
    assert tally([kill]) == "1 faults on 1 problems: 1 killed, 0 survived, 0 not applicable"
