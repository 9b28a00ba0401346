"""What the tests of the report share: a small run of every kind, and a page as a tree."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from parity.faults.kills import Kill
from parity.report.accuracy import Row
from parity.report.documents import Accuracy, Failures, Kills, Run
from parity.report.failures import Failure, Measured

VOID = {"meta", "br", "wbr"}


@dataclass
class Node:
    """An element with everything below it."""

    tag: str
    attributes: dict[str, str | None]
    children: list["Node | str"] = field(default_factory=list)

    @property
    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    @property
    def text(self) -> str:
        return " ".join("".join(c if isinstance(c, str) else c.text for c in self.children).split())

    def all(self, tag: str | None = None, classed: str | None = None) -> Iterator["Node"]:
        """Every element below, in order, of that tag and class."""
        for child in self.children:
            if isinstance(child, Node):
                if tag in (None, child.tag) and (classed is None or classed in child.classes):
                    yield child
                yield from child.all(tag, classed)

    def one(self, tag: str | None = None, classed: str | None = None) -> "Node":
        found = list(self.all(tag, classed))
        assert len(found) == 1, (tag, classed, len(found))
        return found[0]

    def section(self, name: str) -> "Node":
        return next(node for node in self.all("section") if node.attributes.get("id") == name)


class _Tree(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.path = [Node("document", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        self.path[-1].children.append(node)
        if tag not in VOID:
            self.path.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.path[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.path[-1].tag == tag, f"</{tag}> closes <{self.path[-1].tag}>"
        self.path.pop()

    def handle_data(self, data: str) -> None:
        self.path[-1].children.append(data)


@pytest.fixture
def parsed() -> Callable[[str], Node]:
    """A page as a tree; every element must be closed in order."""

    def parse(html: str) -> Node:
        tree = _Tree()
        tree.feed(html)
        tree.close()
        assert [node.tag for node in tree.path] == ["document"]
        return tree.path[0]

    return parse


def _row(quantity: str, units: float | None, implementation: str = "mine", **others: object) -> Row:
    measured = units is not None
    given: dict[str, Any] = {
        "arithmetic": "f64",
        "units": units,
        "rms_units": None,
        "limit": 32.0 if measured else None,
        "limit_row": None,
        "relative_error": 1e-15 if measured else None,
        "judged": 4,
        "failed": 0,
        "expected": 0,
        "not_applicable": 1,
        "worst_item": f"{implementation}-f64-typical-{quantity}",
        "by_regime": {},
    }
    return Row(implementation, "f64", quantity=quantity, **(given | others))


@pytest.fixture
def row() -> Callable[..., Row]:
    """`row(quantity, units, implementation="mine", **others)` where the limit is 32."""
    return _row


@pytest.fixture
def failure() -> Failure:
    """Two rows, three heads and 3 ranks of 100 tokens: `o` is wrong on rank 1 and infinite on rank 2; `dq` is right."""
    per_rank = (1.5, 64.0, float("inf"))
    o = [[[[1.0, units, 2.0] for _ in range(2)] for _ in range(2)] for units in per_rank]
    states = [[[[units, 3.0, 3.0]] for _ in range(2)] for units in (0.0, 0.0, 3200.0)]
    right = [[[[0.5] for _ in range(2)] for _ in range(2)] for _ in range(3)]
    return Failure(
        *("mine-f64-typical-ragged", "mine", "f64", "typical", "ragged"),
        ranks=3,
        tokens=300,
        chunk_size=16,
        message="o is wrong\n<script>alert('&')</script>",
        quantities={
            "o": Measured(32.0, o, "f64"),
            "final_state": Measured(32.0, states),
            "dq": Measured(32.0, right),
            "dk": Measured(32.0, [[[[float("inf")]]]] * 3, not_measured="RuntimeError: <no> kernel\nmore"),
        },
    )


def _kill(fault: str, units: float, *, killed: bool = True, regime: str = "typical") -> Kill:
    return Kill(
        *(fault, "no <exchange> between ranks", "hand_over", "", "f64", regime),
        ranks=4,
        must_fail="dq",
        margin=1000.0,
        units={"o": 1.0, "dq": units},
        limits={"o": 32.0, "dq": 32.0},
        killed=killed,
    )


@pytest.fixture
def run(failure: Failure) -> Run:
    """All three documents of one run."""
    environment = {"jax": "0.10.2", "digests": {"oracle": "abc"}, "flags": "<none>"}
    rows = [_row("o", float("inf"), failed=3), _row("dq", 8.0), _row("dk", None, judged=0, not_applicable=5)]
    kills = [
        _kill("killed_fault", 6.4e12),
        _kill("killed_fault", float("inf"), regime="long_memory"),
        _kill("survivor", 20.0, killed=False),
        replace(
            _kill("killed_fault", 1.0, killed=False), implementation="mine", units={}, not_applicable="no gradients"
        ),
    ]
    return Run(
        Path("now"),
        Accuracy("title", rows, environment),
        Failures([failure], environment),
        Kills(kills, environment),
    )
