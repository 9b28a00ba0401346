"""`python -m parity limits --check REV`: every loosening against a revision; none is a success."""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parity.tolerances.loosening import Facts, Loosening, few, loosenings
from parity.tolerances.provenance import ROOT

FACTS = "parity/tolerances/facts.py"


class CannotCompare(Exception):
    """The revisions cannot be compared; the message says why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "List everything in which this working tree is looser than REV: limits, caps, claims, deleted cases, deleted "
        "or weakened faults, expectations, the measure itself. Exit status: 0 where there is nothing, 1 where there "
        "is, 2 where the two cannot be compared."
    )
    parser.add_argument("--check", metavar="REV", required=True, help="a revision of git, such as origin/main")


def main(arguments: argparse.Namespace) -> int:
    try:
        before, after = _facts_of_revision(arguments.check), _facts(ROOT)
    except CannotCompare as error:
        print(error, file=sys.stderr)
        return 2
    found = loosenings(before, after)
    print(as_text(found) if found else f"nothing is looser than at {arguments.check}")
    return 1 if found else 0


def as_text(found: Sequence[Loosening]) -> str:
    """A table for a terminal."""
    lines = [("kind", "what", "before", "after"), *((x.kind, x.what, x.before, x.after) for x in few(found))]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    table = ("  ".join(x.ljust(w) for x, w in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join([*table, f"{len(found)} loosenings"])


def _facts_of_revision(revision: str) -> Facts:
    """In a copy of that revision, which shares this one's cache of oracle results: they are keyed by their source."""
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        raise CannotCompare(f"git knows no revision {revision!r}; in a shallow clone, fetch it first")
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory).resolve()
        archive = _git("archive", commit.decode().strip())
        assert archive is not None
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(tree, filter="data")
        if not (tree / FACTS).exists():
            raise CannotCompare(f"{revision} has no {FACTS}: it is from before the suite could describe itself")
        (ROOT / ".cache").mkdir(exist_ok=True)
        (tree / ".cache").symlink_to(ROOT / ".cache")
        return _facts(tree)


def _facts(tree: Path) -> dict[str, Any]:
    """What the code in `tree` says of itself, and the tests of the gate that pytest finds there."""
    facts = json.loads(_python(tree, "-m", "parity.tolerances.facts"))
    if facts["root"] != str(tree):
        raise CannotCompare(f"python in {tree} imports the suite from {facts['root']}: an installed one is in the way")
    collected = _python(tree, "-m", "pytest", "parity", "-m", "gate", "--collect-only", "-q", "-n0")
    nodes = [line.partition("::")[2] for line in collected.splitlines() if "::" in line]
    return {**facts, "collected": nodes}


def _python(tree: Path, *arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotCompare(f"{' '.join(arguments)} fails in {tree}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def _git(*arguments: str) -> bytes | None:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
