"""Every mutant of what measures and judges is killed by the tests of its module: each runs in a process of its own."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from parity.mutation.equivalents import EQUIVALENTS
from parity.mutation.mutants import Mutant, mutants

pytestmark = pytest.mark.mutants

ROOT = Path(__file__).parents[2]
TESTS = {
    "parity/unit.py": ("parity/test_unit.py",),
    "parity/verdict.py": ("parity/test_verdict.py",),
    "parity/tolerances/limits.py": ("parity/tolerances/test_limits.py",),
    "parity/tolerances/selector.py": ("parity/tolerances/test_selector.py", "parity/tolerances/test_limits.py"),
}
TIMEOUT = 300


@dataclass(frozen=True)
class Planted:
    """A mutant of `module`, the `number`-th."""

    module: str
    number: int
    mutant: Mutant

    @property
    def name(self) -> str:
        return f"{Path(self.module).stem}_line{self.mutant.line}_{self.number}"


PLANTED = [
    Planted(module, number, mutant)
    for module in TESTS
    for number, mutant in enumerate(mutants((ROOT / module).read_text(encoding="utf-8")))
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, with the oracles' cache of this one."""
    copy = tmp_path_factory.mktemp("tree")
    for package in ("oracles", "implementations", "parity"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / file, copy / file)
    (ROOT / ".cache").mkdir(exist_ok=True)
    (copy / ".cache").symlink_to(ROOT / ".cache")
    return copy


def run_tests(tree: Path, module: str, source: str) -> subprocess.CompletedProcess[str]:
    """The module's tests with `source` in its place; programs that jax has compiled before are not compiled again."""
    original = (tree / module).read_text(encoding="utf-8")
    (tree / module).write_text(source, encoding="utf-8")
    environment = os.environ | {
        "PYTHONDONTWRITEBYTECODE": "1",  # bytecode is found by size and second: another mutant's could be
        "JAX_COMPILATION_CACHE_DIR": str(tree.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-x", "-p", "no:cacheprovider", *TESTS[module]]
    try:
        return subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    finally:
        (tree / module).write_text(original, encoding="utf-8")


@pytest.mark.parametrize("module", TESTS, ids=lambda module: Path(module).stem)
def test_the_module_as_it_is_passes(tree: Path, module: str) -> None:
    done = run_tests(tree, module, (ROOT / module).read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_mutant_is_killed(tree: Path, planted: Planted) -> None:
    is_equivalent = planted.mutant.change in EQUIVALENTS.get(planted.module, {})
    try:
        done = run_tests(tree, planted.module, planted.mutant.source)
    except subprocess.TimeoutExpired:
        survives = False
    else:
        assert done.returncode != 5, done.stdout + done.stderr  # no tests were found
        survives = done.returncode == 0
    where = f"{planted.module}:{planted.mutant.line}: {planted.mutant.change}"
    if is_equivalent:
        assert survives, f"{where}\nis killed: it is no equivalent, take it out of equivalents.py"
    else:
        assert not survives, (
            f"{where}\nsurvives {' '.join(TESTS[planted.module])}: write the test that tells them apart"
        )


def test_every_equivalent_is_a_mutant() -> None:
    made = {module: {p.mutant.change for p in PLANTED if p.module == module} for module in TESTS}
    stale = {module: changes.keys() - made.get(module, set()) for module, changes in EQUIVALENTS.items()}
    assert {module: changes for module, changes in stale.items() if changes} == {}
