"""Worst cases on disk: what is kept, what is replaced, and what a hunt does with what it finds."""

from dataclasses import replace

import pytest

from parity.properties import profiles, worst
from parity.properties.broken import BROKEN
from parity.properties.examples import Example, parse
from parity.properties.hold import Session, Violated
from parity.properties.judge import Finding
from parity.properties.sizes import Sizes
from parity.properties.subjects import ORACLE, SUBJECTS, Subject

SIZES = Sizes(B=1, T=2, Hk=1, group=1, K=1, V=1, chunk_size=1, other_chunk_size=1, cut=1, ranks=1)
CASE = worst.Worst("flip", "chunked-f64", "dk <of> it", 1.5, False, Example(SIZES, seed=1).line())


def test_what_is_kept_is_read_back(tmp_path):
    path = tmp_path / "cases.toml"
    other = replace(CASE, subject="sequential-f64", units=float("inf"), failed=True)
    for case in (CASE, other):
        worst.keep(case, path)
    assert worst.load(path) == (CASE, other)
    assert worst.replayed("flip", "chunked-f64", path) == (CASE,)
    assert worst.load(tmp_path / "absent.toml") == ()


def test_a_worse_case_takes_the_place_of_the_last_one(tmp_path):
    path = tmp_path / "cases.toml"
    worse = replace(CASE, units=2.5, example=Example(SIZES, seed=2).line())
    for case in (CASE, worse):
        worst.keep(case, path)
    assert worst.load(path) == (worse,)


def test_a_case_that_failed_stays(tmp_path):
    path = tmp_path / "cases.toml"
    failed, later = replace(CASE, units=99.0, failed=True), replace(CASE, example=Example(SIZES, seed=2).line())
    for case in (failed, later):
        worst.keep(case, path)
    assert set(worst.load(path)) == {failed, later}


def test_an_edited_case_is_noticed(tmp_path):
    path = tmp_path / "cases.toml"
    worst.keep(CASE, path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("seed = 1", "seed = 3"), encoding="utf-8")
    with pytest.raises(ValueError, match="was its example edited"):
        worst.load(path)
    path.write_text(text.replace("seed = 1", "sead = 1"), encoding="utf-8")
    with pytest.raises(ValueError, match=f"case {CASE.name}: an example has the entries"):
        worst.load(path)


def test_the_cases_on_record_are_of_properties_and_subjects_that_are_there():
    properties, subjects = {prop.__name__ for prop in BROKEN}, {subject.name for subject in SUBJECTS}
    for case in worst.load():
        assert case.prop in properties
        assert case.subject in subjects | {"affine-f64", "affine-f32"}


# What a session does with them

HUNT = replace(profiles.PROFILES["hunt"], examples=5)


ORACLE_SUBJECT = Subject(ORACLE, "f64")


def vary(*, limit, seen=None):
    """A property that costs nothing: as many units as the example's seed."""

    def seeds_are_units(subject, example):
        if seen is not None:
            seen.append(example)
        yield Finding("the seed", float(example.seed), limit)

    return seeds_are_units


@pytest.fixture
def hunt(tmp_path):
    """A session of a hunt with few examples and a file of its own."""
    told = []
    return Session(HUNT, "1", "the test", told.append, tmp_path / "cases.toml"), told


def test_a_hunt_keeps_the_worst_that_it_saw_and_says_so(hunt):
    session, told = hunt
    session.hold(vary(limit=1e9), ORACLE_SUBJECT)
    (kept,) = worst.load(session.worst_cases)
    assert (kept.prop, kept.subject, kept.failed) == ("seeds_are_units", "float64_oracle-f64", False)
    assert kept.units == pytest.approx(parse(kept.example).seed, rel=1e-3)
    assert len(told) == 1
    assert kept.name in told[0]


def test_what_fails_is_kept_and_replayed_first(hunt):
    session, _ = hunt
    with pytest.raises(
        Violated, match=r"(?s)the seed is off by .* where the limit is 8.*run it again: .*--example 'B ="
    ):
        session.hold(vary(limit=8.0), ORACLE_SUBJECT)
    (kept,) = worst.load(session.worst_cases)
    assert kept.failed
    seen = []
    again = replace(session, worst=None)
    again.hold(vary(limit=1e9, seen=seen), ORACLE_SUBJECT)
    assert seen[0] == parse(kept.example)


def test_what_is_not_worse_than_the_record_is_not_kept(hunt):
    session, told = hunt
    record = worst.Worst("seeds_are_units", "float64_oracle-f64", "it", 1.0, False, Example(SIZES, seed=2**30).line())
    worst.keep(record, session.worst_cases)
    session.hold(vary(limit=1e12), ORACLE_SUBJECT)
    assert worst.load(session.worst_cases) == (record,)
    assert told == []


def test_no_other_profile_writes_anything(hunt):
    session, told = hunt
    replace(session, profile=profiles.PROFILES["gate"]).hold(vary(limit=1e9), ORACLE_SUBJECT)
    assert not session.worst_cases.exists()
    assert told == []


def test_what_a_subject_does_not_claim_is_said(hunt):
    session, _ = hunt
    implementation = replace(ORACLE, supports={"gradients", "ragged", "grouped_heads", "unequal_head_sizes"})
    with pytest.raises(pytest.skip.Exception, match="float64_oracle-f64 does not claim beta_above_one"):
        session.hold(vary(limit=1.0), Subject(implementation, "f64"))
