"""`python -m parity limits --check REV`, from the command line down to two revisions of a repository."""

import shutil
import subprocess
import sys

import pytest

from parity.__main__ import main
from parity.tolerances import check
from parity.tolerances.loosening import Loosening
from parity.tolerances.provenance import ROOT


def git(tree, *arguments):
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=tree, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    """A repository of its own with this tree as its one commit."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("oracles", "implementations", "parity"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, tree / name)
    (ROOT / ".cache").mkdir(exist_ok=True)
    (tree / ".cache").symlink_to(ROOT / ".cache")
    git(tree, "init", "-q")
    git(tree, "add", "--", *(x for x in (path.name for path in tree.iterdir()) if x not in (".git", ".cache")))
    git(tree, "commit", "-q", "-m", "all")
    return tree


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_limit_that_is_raised_and_a_case_that_is_deleted_are_found_between_two_revisions(repository):
    """What became stricter in the same change does not pay for it."""
    edit(repository / "parity/tolerances/limits.toml", "[base.f64]\nunits = 32\n", "[base.f64]\nunits = 40\n")
    edit(repository / "parity/tolerances/limits.toml", "[base.f32]\nunits = 32\n", "[base.f32]\nunits = 30\n")
    (repository / "parity/test_final_state.py").unlink()
    command = [sys.executable, "-m", "parity", "limits", "--check", "HEAD"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "32 by row f64" in done.stdout
    assert "40 by row f64" in done.stdout
    assert "by row f32" not in done.stdout
    assert "test_final_state[" in done.stdout
    assert "scaled typical-short f64 in f64 o " in done.stdout
    assert "scaled typical-short f32" not in done.stdout


@pytest.fixture
def between(monkeypatch):
    """Both sets of facts are given; whether they differ is what `loosenings` says."""

    def play(found):
        monkeypatch.setattr(check, "_facts_of_revision", lambda revision: {})
        monkeypatch.setattr(check, "_facts", lambda tree: {})
        monkeypatch.setattr(check, "loosenings", lambda before, after: found)

    return play


def test_nothing_looser_is_a_success(between, capsys):
    between([])
    assert main(["limits", "--check", "main"]) == 0
    assert capsys.readouterr().out == "nothing is looser than at main\n"


def test_a_loosening_is_a_line_of_a_table_and_a_failure(between, capsys):
    between([Loosening("limit", "3 points, such as x", "32 by row f64", "40 by row f64")])
    assert main(["limits", "--check", "main"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "kind   what                 before         after",
        "limit  3 points, such as x  32 by row f64  40 by row f64",
        "1 loosenings",
    ]


@pytest.mark.parametrize("revision", ["nowhere", "--all", "HEAD:parity", ""])
def test_a_revision_that_git_does_not_know_is_one_clear_error(repository, monkeypatch, capsys, revision):
    monkeypatch.setattr(check, "ROOT", repository)
    assert main(["limits", f"--check={revision}"]) == 2
    assert f"git knows no revision {revision!r}" in capsys.readouterr().err


def test_a_revision_from_before_facts_is_one_clear_error(repository, monkeypatch, capsys):
    monkeypatch.setattr(check, "ROOT", repository)
    git(repository, "rm", "-q", check.FACTS)
    git(repository, "commit", "-q", "-m", "none")
    assert main(["limits", "--check", "HEAD"]) == 2
    assert "HEAD has no parity/tolerances/facts.py: it is from before the suite" in capsys.readouterr().err


def test_a_revision_that_cannot_describe_itself_is_one_clear_error(repository, monkeypatch, capsys):
    monkeypatch.setattr(check, "ROOT", repository)
    edit(repository / "parity/tolerances/limits.toml", "[base.f64]\nunits = 32\n", "[base.f64]\nunits = 320\n")
    git(repository, "commit", "-q", "-a", "-m", "over the cap")
    assert main(["limits", "--check", "HEAD"]) == 2
    assert "units must be at most 64 in f64" in capsys.readouterr().err


def test_facts_of_another_tree_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "_python", lambda tree, *_: '{"root": "/elsewhere"}')
    with pytest.raises(check.CannotCompare, match="imports the suite from /elsewhere"):
        check._facts(tmp_path)
