"""Read what runs left in a directory: accuracy.json, failures.json and kills.json, each of which may be absent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from parity.report.failures import Failure
from parity.report.json_form import Damaged, decode

EVERY_QUANTITY = "every quantity"


@dataclass(frozen=True)
class AccuracyRow:
    """The worst case of one implementation, dtype and quantity; the numbers are None where nothing was applicable."""

    implementation: str
    dtype: str
    arithmetic: str | None
    quantity: str
    units: float | None
    limit: float | None
    relative_error: float | None
    judged: int
    failed: int
    not_applicable: int
    worst_item: str | None
    limit_row: str | None = None
    rms_units: float | None = None
    expected: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.implementation, self.dtype, self.quantity

    @property
    def share(self) -> float | None:
        """Units as a share of the limit."""
        return None if self.units is None or not self.limit else self.units / self.limit


@dataclass(frozen=True)
class Accuracy:
    title: str
    rows: list[AccuracyRow]
    environment: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Failures:
    failures: list[Failure]
    environment: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Kill:
    """One planted fault on one problem: `must_fail`, a quantity or EVERY_QUANTITY, had to be `margin` times its limit.

    `implementation` is that around which it was planted, empty for the one that it is written for. Raises ValueError
    where a quantity has units and no limit.
    """

    fault: str
    cause: str
    kind: str
    implementation: str
    dtype: str
    regime: str
    ranks: int
    must_fail: str
    margin: float
    units: dict[str, float]
    limits: dict[str, float]
    killed: bool
    not_applicable: str | None = None

    @property
    def survived(self) -> bool:
        return not self.killed and self.not_applicable is None

    @property
    def demanded(self) -> list[str]:
        """The quantities that had to fail."""
        return list(self.units) if self.must_fail == EVERY_QUANTITY else [self.must_fail]

    def __post_init__(self) -> None:
        without = [quantity for quantity in self.units if not self.limits.get(quantity, 0.0) > 0]
        if without:
            raise ValueError(f"{self.fault} has no limit for {', '.join(without)}")


@dataclass(frozen=True)
class Kills:
    kills: list[Kill]
    environment: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """All that lies in one directory; None where a file is absent."""

    directory: Path
    accuracy: Accuracy | None
    failures: Failures | None
    kills: Kills | None


class CannotRead(Exception):
    """A directory without a run, or a file that is not what it should be."""


T = TypeVar("T")


def read(directory: Path) -> Run:
    """Raises CannotRead where `directory` has none of the three files, or where one is damaged."""
    if not directory.is_dir():
        raise CannotRead(f"there is no directory {directory}; a run of `pytest -m gate` writes build/parity")
    found = Run(
        directory,
        _read(Accuracy, directory / "accuracy.json"),
        _read(Failures, directory / "failures.json"),
        _read(Kills, directory / "kills.json"),
    )
    if found.accuracy is found.failures is found.kills is None:
        raise CannotRead(
            f"{directory} has none of accuracy.json, failures.json and kills.json; "
            f"`pytest -m gate` writes the first two"
        )
    return found


def _read(kind: type[T], path: Path) -> T | None:
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
        found: T = decode(kind, value)
        return found
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CannotRead(f"{path} cannot be read: {error}") from None
    except json.JSONDecodeError as error:
        raise CannotRead(f"{path} is not JSON: {error}; was the run cut short? Run it again") from None
    except Damaged as error:
        raise CannotRead(f"{path} is not what this version writes: {error}") from None
