"""Which points of the gate a row of a table speaks of."""

from collections.abc import Mapping
from dataclasses import dataclass

Value = str | int


@dataclass(frozen=True)
class Selector:
    """`axes`: for each axis that it names, the values it takes; on the others it takes all."""

    axes: Mapping[str, frozenset[Value]]

    def matches(self, point: Mapping[str, Value | None]) -> bool:
        """Whether it takes the value of `point` on every axis it names. Raises KeyError where `point` lacks one."""
        return all(point[axis] in values for axis, values in self.axes.items())

    def overlaps(self, other: "Selector") -> bool:
        """Whether some point is matched by both: on every axis that both name they share a value."""
        return all(self.axes[axis] & other.axes[axis] for axis in self.axes.keys() & other.axes.keys())

    @property
    def text(self) -> str:
        """`dtype = f64, quantity = dk or dv`, or `everything`."""
        named = (f"{axis} = {' or '.join(str(v) for v in _in_order(values))}" for axis, values in self.axes.items())
        return ", ".join(named) or "everything"


def _in_order(values: frozenset[Value]) -> list[Value]:
    return sorted(values, key=lambda value: (isinstance(value, str), value))
