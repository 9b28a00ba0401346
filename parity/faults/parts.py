"""The table of mistakes in the parts around the rule: the layer, its convolution, decoding, layouts, training steps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

COLUMNS = ("part", "mistake", "dtype", "wrong", "least", "most")


@dataclass(frozen=True)
class Seen:
    """A mistake of a part that was planted, and was seen. `units`: the worst of each quantity that was judged."""

    part: str
    mistake: str
    dtype: str
    limit: float
    units: Mapping[str, float]

    @property
    def cells(self) -> tuple[str, ...]:
        """How many quantities are wrong, and by how many limits the least wrong of them and the most wrong."""
        wrong = {name: x / self.limit for name, x in self.units.items() if not x <= self.limit}
        if not wrong:
            return self.part, self.mistake, self.dtype, f"0 of {len(self.units)}", "SURVIVES", ""
        least, most = (
            f"{name} {wrong[name]:.1e}"
            for name in (min(wrong, key=wrong.__getitem__), max(wrong, key=wrong.__getitem__))
        )
        return self.part, self.mistake, self.dtype, f"{len(wrong)} of {len(self.units)}", least, most


def as_text(seen: Iterable[Seen]) -> str:
    """Aligned columns, all to the left."""
    lines = [COLUMNS, *(each.cells for each in _in_order(seen))]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join("  ".join(x.ljust(w) for x, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def as_markdown(seen: Iterable[Seen], title: str) -> str:
    """A section with the table."""
    head = [f"## {title}", "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    return "\n".join([*head, *(f"| {' | '.join(each.cells)} |" for each in _in_order(seen))]) + "\n"


def _in_order(seen: Iterable[Seen]) -> list[Seen]:
    return sorted(seen, key=lambda each: (each.part, each.mistake))
