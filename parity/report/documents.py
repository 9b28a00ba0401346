"""Read what runs left in a directory: accuracy.json, failures.json and kills.json, each of which may be absent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from parity.compiled.exchanged import Exchanged
from parity.faults.kills import Kill
from parity.report.accuracy import Row
from parity.report.failures import Failure
from parity.report.json_form import Damaged, decode


@dataclass(frozen=True)
class Accuracy:
    title: str
    rows: list[Row]
    environment: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Failures:
    """`unmeasured`: the failing items that left nothing to read: their process ended, or there was no verdict."""

    failures: list[Failure]
    environment: Mapping[str, object] = field(default_factory=dict)
    unmeasured: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Kills:
    kills: list[Kill]
    environment: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Exchanges:
    rows: list[Exchanged]
    environment: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """All that lies in one directory; None where a file is absent."""

    directory: Path
    accuracy: Accuracy | None
    failures: Failures | None
    kills: Kills | None
    exchanges: Exchanges | None = None


class CannotRead(Exception):
    """A directory without a run, or a file that is not what it should be."""


T = TypeVar("T")


def read(directory: Path) -> Run:
    """Raises CannotRead where `directory` has none of the four files, or where one is damaged."""
    if not directory.is_dir():
        raise CannotRead(f"there is no directory {directory}; a run of `pytest -m gate` writes build/parity")
    found = Run(
        directory,
        _read(Accuracy, directory / "accuracy.json"),
        _read(Failures, directory / "failures.json"),
        _read(Kills, directory / "kills.json"),
        _read(Exchanges, directory / "exchanged.json"),
    )
    if found.accuracy is found.failures is found.kills is found.exchanges is None:
        raise CannotRead(
            f"{directory} has none of accuracy.json, failures.json, kills.json and exchanged.json; "
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
