"""The worst cases on record, for each property and subject. They are replayed before anything is drawn."""

import hashlib
import os
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from parity.properties.examples import parse

PATH = Path(__file__).with_name("worst_cases.toml")

_HEADER = """# Written by `tox -e hunt`; replayed first, in this order, by every run of the property tests.
# One case for each property and subject, the worst that was found; one that failed stays for good.
"""


@dataclass(frozen=True)
class Worst:
    """`subject` is `<implementation>-<dtype>`; `example` is `Example.line()`; `failed`: it was over its limit then."""

    prop: str
    subject: str
    what: str
    units: float
    failed: bool
    example: str

    @property
    def name(self) -> str:
        return f"{self.prop}-{self.subject}-{hashlib.sha256(self.example.encode()).hexdigest()[:6]}"


def load(path: Path = PATH) -> tuple[Worst, ...]:
    """The cases in the order of the file; none where there is no file. Raises ValueError on one that does not fit."""
    if not path.exists():
        return ()
    found = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("case", []):
        name = entry.pop("name", None)
        try:
            case = Worst(prop=entry.pop("property", None), **entry)
            parse(case.example)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path.name}: case {name}: {error}") from None
        if case.name != name:
            raise ValueError(f"{path.name}: case {name} should be called {case.name}: was its example edited?")
        found.append(case)
    return tuple(found)


def replayed(property_name: str, subject: str, path: Path = PATH) -> tuple[Worst, ...]:
    return tuple(case for case in load(path) if (case.prop, case.subject) == (property_name, subject))


def keep(case: Worst, path: Path = PATH) -> None:
    """Put `case` in the place of the last one of its property and subject. Workers take turns; readers see no half."""
    with FileLock(f"{path}.lock"):
        others = [x for x in load(path) if x.failed or (x.prop, x.subject) != (case.prop, case.subject) or x == case]
        _write(path, sorted({x.name: x for x in (*others, case)}.values(), key=lambda x: (x.prop, x.subject)))


def _write(path: Path, cases: Sequence[Worst]) -> None:
    text = _HEADER + "".join(f"\n[[case]]\n{_entry(case)}" for case in cases)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def _entry(case: Worst) -> str:
    return (
        f'name = "{case.name}"\nproperty = "{case.prop}"\nsubject = "{case.subject}"\n'
        f"what = '{case.what}'\nunits = {case.units:.3e}\nfailed = {str(case.failed).lower()}\n"
        f"example = '{case.example}'\n"
    )
