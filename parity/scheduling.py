"""Which worker runs what: everything that one compiled program serves, in one worker."""

import re

from xdist.scheduler import LoadGroupScheduling

_CASE = re.compile(r"\[(\w+-(?:f64|f32|bf16))-\w+-(\w+?)(?:-shard\d+of(\d+)-\w+)?\]$")


class CompilationScheduling(LoadGroupScheduling):
    """`--dist loadgroup` with the compilation read from a test's id.

    The mark `xdist_group` would say the same, but pytest-xdist 3.8 writes it into ids, which pytest 9.2 does not allow.
    """

    def _split_scope(self, nodeid: str) -> str:
        return compilation(nodeid) or super()._split_scope(nodeid)


def compilation(nodeid: str) -> str | None:
    """Implementation, dtype, shape and ranks of a test whose parameter is a case or an item of the gate; else None."""
    case = _CASE.search(nodeid)
    return f"{case[1]}-{case[2]}-{case[3] or 1}ranks" if case else None
