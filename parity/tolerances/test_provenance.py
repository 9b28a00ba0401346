"""Where a number comes from: the commit and whether it is all, the devices, the flags, and the sources."""

import subprocess

import jax
import pytest

from parity.tolerances import provenance as provenance_module
from parity.tolerances.provenance import digest, provenance


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository with one file, which is what this suite is taken for."""
    (tmp_path / "a.py").write_text("a")
    for arguments in (("init", "-q"), ("add", "a.py"), ("commit", "-q", "-m", "one")):
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance_module, "ROOT", tmp_path)
    monkeypatch.setattr(provenance_module, "PROBLEM_SOURCES", ("a.py",))
    monkeypatch.setattr(provenance_module, "STREAM", "a.py")
    return tmp_path


def test_a_commit_is_all_there_is_only_where_nothing_was_changed(tree):
    found = provenance()
    assert found["clean_tree"] is True
    assert len(found["commit"]) == 40
    (tree / "b.py").write_text("b")
    assert provenance()["clean_tree"] is False
    assert provenance()["commit"] == found["commit"]


def test_without_git_nothing_is_vouched_for(tree, monkeypatch):
    monkeypatch.setenv("PATH", "")
    found = provenance()
    assert (found["commit"], found["clean_tree"]) == ("unknown", False)


def test_the_digest_is_of_names_and_contents(tree):
    (tree / "b.py").write_text("b")
    both = digest([tree / "a.py", tree / "b.py"])
    assert both == digest([tree / "b.py", tree / "a.py"])
    (tree / "b.py").rename(tree / "c.py")
    renamed = digest([tree / "a.py", tree / "c.py"])
    (tree / "c.py").write_text("c")
    assert len({both, renamed, digest([tree / "a.py", tree / "c.py"]), digest([tree / "a.py"])}) == 4


def test_what_the_devices_and_the_flags_are(tree, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_one --xla_two")
    found = provenance()
    assert (found["platform"], found["device_kind"]) == ("cpu", jax.devices()[0].device_kind)
    assert found["device_count"] == len(jax.devices())
    assert "XLA_FLAGS=--xla_one --xla_two" in found["flags"]


def test_the_sources_that_decide_the_problems_are_there():
    for name in (*provenance_module.PROBLEM_SOURCES, provenance_module.STREAM):
        assert (provenance_module.ROOT / name).is_file(), name
