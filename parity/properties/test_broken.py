"""Each property rejects code that lacks it, and there is none without such a proof."""

import inspect
from collections.abc import Iterator

import pytest

from parity.properties import causality, composition, invariance, pairings, profiles, segments, symmetries
from parity.properties.broken import BROKEN
from parity.properties.examples import Example
from parity.properties.hold import Session, Violated
from parity.properties.judge import Finding
from parity.properties.sizes import pool

MODULES = (pairings, symmetries, causality, segments, invariance, composition)


def is_property(function):
    return inspect.isfunction(function) and inspect.signature(function).return_annotation == Iterator[Finding]


def test_every_property_has_code_that_lacks_it():
    public = {x for module in MODULES for name, x in vars(module).items() if name[0] != "_" and is_property(x)}
    assert public == BROKEN.keys()


@pytest.mark.parametrize(("prop", "subject"), BROKEN.items(), ids=[prop.__name__ for prop in BROKEN])
def test_code_that_lacks_the_property_is_rejected(prop, subject):
    session = Session(profiles.PROFILES["gate"], None, "the test", tell=pytest.fail)
    sizes = pool("broken", 8, context_parallel=subject.context_parallel)

    def check_all():
        for seed, of_this_size in enumerate(sizes):
            session.check(prop, subject, Example(of_this_size, seed=seed))

    with pytest.raises(Violated, match=f"(?s){prop.__name__} does not hold for {subject.name}.*example: B = "):
        check_all()
