"""What is written is read back the same; what is not as it should be is named by its place."""

import json
import math
from dataclasses import dataclass

import pytest

from parity.report.json_form import Damaged, decode, encode


@dataclass(frozen=True)
class Inner:
    numbers: list[float]
    name: str | None = None


@dataclass(frozen=True)
class Outer:
    count: int
    inner: dict[str, Inner]
    fine: bool = True

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("count is negative")


def test_a_document_is_read_back_as_it_was() -> None:
    document = Outer(3, {"a": Inner([1.0, math.inf, 0.1]), "b": Inner([], "b")}, fine=False)
    text = encode(document)
    assert decode(Outer, json.loads(text, parse_constant=lambda name: 1 / 0)) == document
    assert '"inf"' in text


def test_what_is_unknown_is_left_out_and_defaults_may_be_missing() -> None:
    assert decode(Outer, {"count": 1, "inner": {}, "of_a_later_version": 1}) == Outer(1, {})


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "the document is []; expected an object"),
        ({"inner": {}}, "the document has no count; its keys are inner"),
        ({"count": True, "inner": {}}, "count is true; expected a whole number"),
        ({"count": 1.5, "inner": {}}, "count is 1.5; expected a whole number"),
        (
            {"count": 1, "inner": {"a": {"numbers": [0, "infinity"]}}},
            'inner.a.numbers[1] is "infinity"; expected a num',
        ),
        ({"count": 1, "inner": {"a": {"numbers": [math.nan]}}}, "inner.a.numbers[0] is NaN; expected a number"),
        ({"count": 1, "inner": {"a": {"numbers": [True]}}}, "inner.a.numbers[0] is true; expected a number"),
        ({"count": 1, "inner": {"a": {"numbers": [], "name": 1}}}, "inner.a.name is 1; expected a string"),
        ({"count": -1, "inner": {}}, "the document is at odds with itself: count is negative"),
        ("x" * 100, f'the document is "{"x" * 36}...; expected an object'),
    ],
)
def test_what_is_damaged_is_named_by_its_place(document: object, says: str) -> None:
    with pytest.raises(Damaged) as error:
        decode(Outer, document)
    assert str(error.value).startswith(says)
