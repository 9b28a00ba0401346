"""A compilation is one unit of work, and no test of another kind is taken for one."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from xdist.workermanage import WorkerController

import implementations
from parity.faults.catalogue import CATALOGUE, NULL_MODELS
from parity.faults.planting import plantings
from parity.matrix import cases, items
from parity.scheduling import CompilationScheduling, compilation, states


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


def test_a_unit_is_as_large_as_its_shape() -> None:
    for case in cases(implementations.ALL):
        shape = case.problem.shape
        assert states(f"parity/test_x.py::test_x[{case.name}-shard0of{case.ranks}-dq]") == (
            shape.B * shape.T * np.prod(shape.sizes()["initial_state"][1:])
        )
    assert states("parity/test_x.py::test_x[mine-bf16-long_memory-another]") == 0
    assert states("parity/test_x.py::test_x") == 0


class Worker(WorkerController):
    """What the scheduler asks of a worker; it runs nothing."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(tests: list[str], workers: list[Worker]) -> CompilationScheduling:
    config = SimpleNamespace(
        option=SimpleNamespace(loadscopereorder=True), getvalue=lambda name: [f"{len(workers)}*popen"]
    )
    scheduler = CompilationScheduling(config)
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    return scheduler


def ends(scheduler: CompilationScheduling, worker: Worker, tests: list[int]) -> None:
    for test in tests:
        scheduler.mark_test_complete(worker, test)


def items_in(**units: int) -> list[str]:
    """So many tests for each shape."""
    return [
        f"parity/test_x.py::test_x[mine-f64-typical-{shape}-shard{i}of8-dq]"
        for shape, count in units.items()
        for i in range(count)
    ]


def test_after_the_first_unit_the_largest_shape_goes_out_first_whatever_its_number_of_tests() -> None:
    tests = items_in(ragged=9, short=8, ragged_on_2x4=4, wide=3)
    worker = Worker("gw0")
    scheduler = scheduled(tests, [worker])
    ends(scheduler, worker, list(range(9)))
    shapes = [re.search(r"typical-(\w+)-shard", tests[i])[1] for i in worker.sent]
    assert list(dict.fromkeys(shapes)) == ["ragged", "wide"]
    ends(scheduler, worker, worker.sent[9:])
    assert [tests[i] for i in worker.sent[12:]] == items_in(ragged_on_2x4=4)


def replaced(scheduler: CompilationScheduling, dead: Worker, tests: list[str]) -> tuple[str | None, Worker]:
    """The test that `dead` ended in, and the worker that comes in its place."""
    fatal, new = scheduler.remove_node(dead), Worker("new")
    scheduler.add_node(new)
    scheduler.add_node_collection(new, tests)
    scheduler.schedule()
    return fatal, new


def test_the_test_that_ended_its_worker_is_not_run_again_and_the_rest_of_its_unit_is() -> None:
    tests = items_in(ragged=4, short=3)
    first, second = Worker("gw0"), Worker("gw1")
    scheduler = scheduled(tests, [first, second])
    assert (first.sent, second.sent) == ([0, 1, 2, 3], [4, 5, 6])
    ends(scheduler, first, [0])
    fatal, new = replaced(scheduler, first, tests)
    assert fatal == tests[1]
    assert new.sent == [2, 3]


def test_a_new_worker_that_gets_the_last_test_is_told_that_none_follows() -> None:
    """Or it would hold that test back for ever: a worker runs one when it has the next, or knows that there is none."""
    tests = items_in(short=2)
    worker = Worker("gw0")
    fatal, new = replaced(scheduled(tests, [worker]), worker, tests)
    assert fatal == tests[0]
    assert new.sent == [1]
    assert new.shutting_down


def test_no_work_is_booked_for_a_new_worker_that_still_collects() -> None:
    """What two workers leave that end one after the other goes out when the first new one can take it."""
    tests = items_in(ragged=4, short=3)
    first, second, new = (Worker(f"gw{i}") for i in range(3))
    scheduler = scheduled(tests, [first, second])
    assert scheduler.remove_node(first) == tests[0]
    ends(scheduler, second, [4])
    scheduler.add_node(new)
    assert scheduler.remove_node(second) == tests[5]
    assert (new.sent, new.shutting_down) == ([], False)
    scheduler.add_node_collection(new, tests)
    scheduler.schedule()
    assert new.sent == [1, 2, 3]
    ends(scheduler, new, [1])
    assert new.sent == [1, 2, 3, 6]
    ends(scheduler, new, [2, 3])
    assert new.shutting_down


@pytest.mark.parametrize(
    ("collected", "said"),
    [
        (items_in(short=4), "4 tests where that one had 3: .*shard3of8-dq. is in one"),
        (items_in(short=3)[::-1], "order"),
    ],
    ids=["more", "in another order"],
)
def test_a_new_worker_that_collects_other_tests_is_an_error(collected: list[str], said: str) -> None:
    worker = Worker("gw0")
    scheduler = scheduled(items_in(short=3), [worker])
    with pytest.raises(RuntimeError, match=f"new, in place of a worker that ended, collected .*{said}"):
        replaced(scheduler, worker, collected)
