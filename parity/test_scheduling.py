"""A compilation is one unit of work, and no test of another kind is taken for one."""

import pytest

import implementations
from parity.faults.catalogue import CATALOGUE, NULL_MODELS
from parity.faults.planting import plantings
from parity.matrix import cases, items
from parity.scheduling import compilation


def test_every_item_of_the_gate_belongs_to_its_compilation() -> None:
    for item in items(cases(implementations.ALL + implementations.VARIANTS)):
        assert compilation(f"parity/test_backward.py::test_backward[{item.name}]") == item.case.compilation


def test_the_regimes_of_a_fault_are_one_compilation_and_no_two_faults_are() -> None:
    for implementations_ in ((), (implementations.ALL)):
        groups: dict[str | None, set[str]] = {}
        for planting in plantings((*CATALOGUE, *NULL_MODELS), implementations_):
            planted_in = planting.implementation.name if planting.implementation else "its own"
            node = f"parity/faults/test_faults.py::test_a_fault_is_caught[{planting.name}]"
            groups.setdefault(compilation(node), set()).add(f"{planting.fault.name} in {planted_in}")
        assert None not in groups
        assert all(len(faults) == 1 for faults in groups.values())
        assert len(groups) == len({fault for faults in groups.values() for fault in faults})


def test_a_case_without_a_rank_is_on_one_rank() -> None:
    assert compilation("parity/test_x.py::test_x[mine-bf16-long_memory-ragged]") == "mine-bf16-ragged-1ranks"


@pytest.mark.parametrize(
    "node", ["test_x", "test_x[f64-typical]", "test_x[substitution-f64-typical-chunk16-more-less]", "test_x[a-b-c-d]"]
)
def test_another_test_stands_for_itself(node: str) -> None:
    assert compilation(f"parity/test_x.py::{node}") is None
