"""Rows of a TOML file that people write: every complaint names the file, the row, and what is expected."""

import math
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NoReturn

from parity.tolerances.selector import Selector

# What an axis may hold: these values, or, for None, anything that can be the name of an implementation.
Axes = Mapping[str, Collection[str] | Collection[int] | None]

NAME = re.compile(r"[a-z][a-z0-9_]*")


class BadTable(ValueError):
    """A table that cannot be used; the message says which file and row, what was given and what is expected."""


def read_toml(path: Path) -> dict[str, Any]:
    """Raises BadTable where the file cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadTable(f"{path}: it cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadTable(f"{path}: it is not TOML: {error}") from None


def tables(path: Path, document: Mapping[str, Any], key: str) -> list["Entry"]:
    """The rows `[[key]]` of a document, which may have none."""
    rows = document.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadTable(f"{path}: {key} must be rows that begin with [[{key}]]")
    called = [f" ({row['name']})" if "name" in row else "" for row in rows]
    return [Entry(str(path), f"{key} {i + 1}{called[i]}", row) for i, row in enumerate(rows)]


@dataclass(frozen=True)
class Entry:
    """One row of a file; `row` is what people call it."""

    file: str
    row: str
    values: Mapping[str, Any]

    def refuse(self, problem: str) -> NoReturn:
        raise BadTable(f"{self.file}: {self.row}: {problem}")

    def has_keys(self, required: Collection[str], optional: Collection[str] = ()) -> None:
        """Refuse a key that is missing and one that nobody knows."""
        missing = [key for key in required if key not in self.values]
        unknown = [key for key in self.values if key not in (*required, *optional)]
        if missing:
            self.refuse(f"{', '.join(missing)} must be given")
        if unknown:
            self.refuse(f"{', '.join(unknown)}: no such key; known are {', '.join((*required, *optional))}")

    def text(self, key: str) -> str:
        value = self.values[key]
        if not isinstance(value, str) or not value.strip():
            self.refuse(f"{key} must be a text that says something; got {value!r}")
        return value

    def name(self) -> str:
        value = self.values["name"]
        if not isinstance(value, str) or not NAME.fullmatch(value):
            self.refuse(f"name must match {NAME.pattern}; got {value!r}")
        return value

    def date(self) -> date:
        value = self.values["date"]
        if not isinstance(value, date) or isinstance(value, datetime):
            self.refuse(f"date must be a TOML date without quotes, such as 2026-11-29; got {value!r}")
        somewhere_on_earth = datetime.now(timezone(timedelta(hours=14))).date()
        if value > somewhere_on_earth:
            self.refuse(f"date must not be in the future; got {value}")
        return value

    def units(self, key: str, value: object) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not value > 0:  # type: ignore[arg-type, operator]
            self.refuse(f"{key} must be a positive, finite number of units; got {value!r}")
        return float(value)  # type: ignore[arg-type]

    def selector(self, axes: Axes) -> Selector:
        """From those of `axes` that the row names: a value or a list of values each."""
        return Selector({axis: self._values(axis, known) for axis, known in axes.items() if axis in self.values})

    def _values(self, axis: str, known: Collection[Any] | None) -> frozenset[Any]:
        given = self.values[axis]
        values = given if isinstance(given, list) else [given]
        if not values or len(values) != len({repr(x) for x in values}):
            self.refuse(f"{axis} must be a value or a list of different values; got {given!r}")
        for value in values:
            if known is None:
                if not isinstance(value, str) or not NAME.fullmatch(value):
                    self.refuse(f"{axis} must match {NAME.pattern}, like all names of implementations; got {value!r}")
            elif isinstance(value, bool | float) or value not in known:
                self.refuse(f"{axis} {value!r} is not known; known are {', '.join(str(x) for x in known)}")
        return frozenset(values)


def require_disjoint(file: str, selectors: Mapping[str, Selector]) -> None:
    """Raise BadTable naming the first two rows that speak of one point: which of them holds would be a guess."""
    rows = list(selectors.items())
    for i, (name, selector) in enumerate(rows):
        for other_name, other in rows[i + 1 :]:
            if selector.overlaps(other):
                raise BadTable(
                    f"{file}: {name} and {other_name} overlap: {selector.text}; and {other.text}. "
                    f"Exactly one row must decide a point: tell them apart on one axis"
                )
