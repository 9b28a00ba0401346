"""A compilation is one unit of work, and no test of another kind is taken for one."""

import pytest

import implementations
from parity.matrix import cases, items
from parity.scheduling import compilation


def test_every_item_of_the_gate_belongs_to_its_compilation() -> None:
    for item in items(cases(implementations.ALL)):
        assert compilation(f"parity/test_backward.py::test_backward[{item.name}]") == item.case.compilation


def test_a_case_without_a_rank_is_on_one_rank() -> None:
    assert compilation("parity/test_x.py::test_x[mine-bf16-long_memory-ragged]") == "mine-bf16-ragged-1ranks"


@pytest.mark.parametrize(
    "node", ["test_x", "test_x[f64-typical]", "test_x[substitution-f64-typical-chunk16-more-less]", "test_x[a-b-c-d]"]
)
def test_another_test_stands_for_itself(node: str) -> None:
    assert compilation(f"parity/test_x.py::{node}") is None
