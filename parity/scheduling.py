"""Which worker runs what: everything that one compiled program serves, in one worker."""

import re
from collections import OrderedDict
from collections.abc import Sequence

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

from parity.shapes import SHAPES

_CASE = re.compile(r"\[(\w+-(?:f64|f32|bf16))-\w+-(\w+?)(?:-shard\d+of(\d+)-\w+)?\]$")


class CompilationScheduling(LoadGroupScheduling):
    """`--dist loadgroup` with the compilation read from a test's id.

    The mark `xdist_group` would say the same, but pytest-xdist 3.8 writes it into ids, which pytest 9.2 does not allow.
    """

    workqueue: OrderedDict[str, dict[str, bool]]

    def _split_scope(self, nodeid: str) -> str:
        return compilation(nodeid) or super()._split_scope(nodeid)

    def schedule(self) -> None:
        """The largest shapes go out next: pytest-xdist 3.8 asks how many tests a unit has, and leaves the units of few
        but long ones, one worker's share, to the end.
        """
        super().schedule()
        self.workqueue = OrderedDict(sorted(self.workqueue.items(), key=lambda unit: -states(next(iter(unit[1])))))

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """Raises RuntimeError where a worker in place of another collects other tests: xdist 3.8 only logs it."""
        super().add_node_collection(node, collection)
        if node not in self.registered_collections:
            before = self.collection or []
            of_one = set(collection).symmetric_difference(before)
            difference = f"{min(of_one)} is in one of them only" if of_one else "they are in another order"
            raise RuntimeError(
                f"{node.gateway.id}, in place of a worker that ended, collected {len(collection)} tests where that one "
                f"had {len(before)}: {difference}. What is collected must be the same in every process"
            )

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that ended its worker, if it did; the others of that worker go to another.

        pytest-xdist 3.8 would run that test again, to the same end, and hand out what is done, as work of no tests.
        """
        work = self.assigned_work[node]
        fatal = next((test for unit in work.values() for test, done in unit.items() if not done), None)
        for scope, unit in list(work.items()):
            if fatal in unit:
                unit[fatal] = True
            if all(unit.values()):
                del work[scope]
        super().remove_node(node)
        return fatal

    def _reschedule(self, node: WorkerController) -> None:
        """A worker runs its last test when it knows that none follows: it is told so where there is no more work.

        pytest-xdist 3.8 tells it when its test before that ends, which never comes where a new worker gets one test.
        And where a worker ends while a new one still collects, it books work for the new one that it cannot send: tests
        would be lost, the fatal one with them, or waited for without end. A new worker asks when it has collected.
        """
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        if not self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work.get(node, {})) < 2:
            node.shutdown()


def compilation(nodeid: str) -> str | None:
    """Implementation, dtype, shape, ranks and whether rows are packed, of a test whose parameter is a case or an item
    of the gate; else None.
    """
    case = _CASE.search(nodeid)
    packed = "-packed" if case and "_packed_" in case[0] else ""
    return f"{case[1]}-{case[2]}-{case[3] or 1}ranks{packed}" if case else None


def states(nodeid: str) -> int:
    """The elements of all states of all tokens in the shape of a test that belongs to a compilation; else 0."""
    case = _CASE.search(nodeid)
    shape = SHAPES.get(case[2].partition("_on_")[0]) if case else None
    return shape.B * shape.T * shape.Hv * shape.K * shape.V if shape else 0
