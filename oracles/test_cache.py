"""The cache believes only what was written, survives a kill, and computes a key once for all processes."""

import errno
import hashlib
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from oracles import cache
from oracles.cache import Cache, DamagedCacheEntry, UnusableCache, digest

KEY = digest({}, "a test")
ROOT = Path(cache.__file__).parents[1]


def some_arrays():
    return {
        "o": np.arange(12.0).reshape(3, 4)[:, ::2] / 3,
        "final_state": np.array([[np.nan, -0.0, np.inf, 5e-324]]),
        "bits": np.array(200),
        "empty": np.zeros((0, 3), np.float32),
    }


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes(), name


def never():
    raise AssertionError("computed, though it is in the cache")


def entry(directory):
    (path,) = directory.glob("*.entry")
    return path


# Keys


def test_digest_is_a_function_of_its_arguments():
    x = {"q": np.arange(6.0).reshape(2, 3), "k": np.ones(2)}
    assert digest(x, "scale=None") == digest({"k": np.ones(2), "q": np.arange(6.0).reshape(2, 3)}, "scale=None")
    assert digest({"q": x["q"].T}) == digest({"q": np.ascontiguousarray(x["q"].T)})
    assert len(digest(x)) == 64


@pytest.mark.parametrize(
    "other",
    [
        ({"q": np.array([1.0, 2.0]), "k": np.array([3.0])}, "scale"),
        ({"q": np.array([1.0, 2.0]), "k": np.array([-0.0])}, "scale"),
        ({"q": np.array([1.0, 0.0]), "k": np.array([2.0])}, "scale"),
        ({"q": np.array([0.0]), "k": np.array([1.0, 2.0])}, "scale"),
        ({"k": np.array([1.0, 2.0]), "q": np.array([0.0])}, "scale"),
        ({"q": np.array([[1.0, 2.0]]), "k": np.array([0.0])}, "scale"),
        ({"q": np.array([1.0, 2.0], np.float32), "k": np.array([0.0])}, "scale"),
        ({"q": np.array([1.0, 2.0]).view(np.int64), "k": np.array([0.0])}, "scale"),
        ({"q": np.array([1.0, 2.0])}, "scale"),
        ({"q": np.array([1.0, 2.0]), "k": np.array([0.0])},),
        ({"q": np.array([1.0, 2.0]), "k": np.array([0.0])}, "scal", "e"),
        ({"q": np.array([1.0, 2.0]), "k": np.array([0.0])}, "scale", ""),
    ],
)
def test_digest_tells_apart(other):
    arrays, *parts = other
    assert digest(arrays, *parts) != digest({"q": np.array([1.0, 2.0]), "k": np.array([0.0])}, "scale")


def test_digest_tells_dtypes_of_one_kind_and_size_apart():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    zeros = [np.zeros(3, dtype) for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, np.uint8, np.int8)]
    zeros += [np.zeros(3, dtype) for dtype in (">f8", "<f8")]
    assert len({digest({"x": x}) for x in zeros}) == len(zeros)


def test_digest_refuses_python_objects():
    with pytest.raises(TypeError, match="q holds Python objects"):
        digest({"q": np.array([1.0], dtype=object)})


@pytest.fixture
def other_source(tmp_path, monkeypatch):
    """A copy of the oracles' source that a test may change, and which is read anew for every key."""
    for path in cache.SOURCE.rglob("*.py"):
        copy = tmp_path / "oracles" / path.relative_to(cache.SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    original = digest({})
    monkeypatch.setattr(cache, "SOURCE", tmp_path / "oracles")
    monkeypatch.setattr(cache, "_source_digest", cache._source_digest.__wrapped__)
    assert digest({}) == original
    return tmp_path / "oracles"


def test_digest_follows_every_source_file_and_no_test(other_source):
    seen = {digest({})}
    paths = [path for path in other_source.rglob("*.py") if not path.name.startswith("test_")]
    assert {"stream.py", "float64.py", "ball.py", "mp.py"} <= {path.name for path in paths}
    for count, path in enumerate(paths, start=1):
        path.write_bytes(path.read_bytes() + b"#")
        seen.add(digest({}))
        assert len(seen) == count + 1, path
    (other_source / "ball.py").write_text("")
    seen.add(digest({}))
    (other_source / "ball.py").rename(other_source / "balls.py")
    seen.add(digest({}))
    assert len(seen) == len(paths) + 3
    latest = digest({})
    (other_source / "test_new.py").write_text("x")
    assert digest({}) == latest


@pytest.mark.parametrize("package", ["numpy", "flint"])
def test_digest_follows_versions(monkeypatch, package):
    before = digest({})
    monkeypatch.setattr(f"{package}.__version__", "0.0")
    assert digest({}) != before


# Entries


def test_what_was_computed_is_read_back_bit_for_bit(tmp_path):
    directory = tmp_path / "made" / "on the way"
    assert_same(Cache(directory).fetch(KEY, some_arrays), some_arrays())
    assert_same(Cache(directory).fetch(KEY, never), some_arrays())
    assert_same(Cache(directory).fetch(digest({}, "another"), dict), {})


def test_an_entry_is_the_digest_of_its_payload_and_an_npz(tmp_path):
    Cache(tmp_path).fetch(KEY, some_arrays)
    header, payload = entry(tmp_path).read_bytes().split(b"\n", 1)
    assert header.decode() == hashlib.sha256(KEY.encode() + b"\n" + payload).hexdigest()
    assert_same(dict(np.load(io.BytesIO(payload))), some_arrays())


def test_an_entry_under_the_name_of_another_is_damaged(tmp_path):
    cache, other = Cache(tmp_path), digest({}, "another")
    cache.fetch(KEY, some_arrays)
    (tmp_path / f"{other}.entry").write_bytes(entry(tmp_path).read_bytes())
    with pytest.warns(DamagedCacheEntry):
        assert_same(cache.fetch(other, dict), {})


def flip(position):
    def damage(content):
        flipped = bytearray(content)
        flipped[position] ^= 1
        return bytes(flipped)

    return damage


def test_an_entry_is_complete_and_on_disk_before_it_is_renamed_into_place(tmp_path, monkeypatch):
    synced, renamed = [], []
    fsync, replace = os.fsync, os.replace

    def record_sync(descriptor):
        fsync(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    def record_replace(source, target):
        assert Path(source).parent == Path(target).parent
        renamed.append(len(Path(source).read_bytes()))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", record_sync)
        patch.setattr(os, "replace", record_replace)
        Cache(tmp_path).fetch(KEY, some_arrays)
    assert synced == renamed == [entry(tmp_path).stat().st_size]


DAMAGES = {
    "zero_length": lambda content: b"",
    "header_only": lambda content: content[:65],
    "half": lambda content: content[: len(content) // 2],
    "one_byte_short": lambda content: content[:-1],
    "one_byte_more": lambda content: content + b"\0",
    "bit_of_header": flip(3),
    "newline": flip(64),
    "bit_of_payload": flip(300),
    "last_bit": flip(-1),
    "garbage": lambda content: b"\x80\x04garbage\n" * 50,
    "no_digest": lambda content: content[65:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_entry_is_reported_computed_again_and_replaced(tmp_path, damage):
    Cache(tmp_path).fetch(KEY, some_arrays)
    path = entry(tmp_path)
    content = path.read_bytes()
    path.write_bytes(damage(content))
    with pytest.warns(DamagedCacheEntry, match=path.name):
        found = Cache(tmp_path).fetch(KEY, lambda: {"fresh": np.ones(2)})
    assert_same(found, {"fresh": np.ones(2)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(Cache(tmp_path).fetch(KEY, never), {"fresh": np.ones(2)})


def test_every_bit_of_an_entry_counts(tmp_path):
    Cache(tmp_path).fetch(KEY, lambda: {"x": np.ones(1)})
    path = entry(tmp_path)
    content = path.read_bytes()
    for position in range(len(content)):
        path.write_bytes(flip(position)(content))
        with pytest.warns(DamagedCacheEntry):
            assert cache._read(path) is None


def test_python_objects_are_never_stored(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle"):
        Cache(tmp_path).fetch(KEY, lambda: {"x": np.array([{}])})
    assert not list(tmp_path.glob("*.entry"))


def test_a_failed_computation_stores_nothing_and_frees_the_key(tmp_path):
    def fail():
        raise OSError("of the computation, not of the cache")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OSError, match="of the computation"):
            Cache(tmp_path).fetch(KEY, fail)
        assert_same(Cache(tmp_path).fetch(KEY, some_arrays), some_arrays())


# A directory that cannot be used


def assert_computes_and_warns_once(directory):
    broken = Cache(directory)
    with pytest.warns(UnusableCache, match="no oracle cache in"):
        assert_same(broken.fetch(KEY, some_arrays), some_arrays())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(broken.fetch(KEY, some_arrays), some_arrays())


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert_computes_and_warns_once(tmp_path / "file" / "cache")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written(tmp_path):
    tmp_path.chmod(0o555)
    assert_computes_and_warns_once(tmp_path)


def test_an_entry_that_cannot_be_read(tmp_path):
    (tmp_path / f"{KEY}.entry").mkdir()
    assert_computes_and_warns_once(tmp_path)


def test_a_full_disk_leaves_no_entry_and_no_temporary_file(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert_computes_and_warns_once(tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".entry", ".tmp")]
    assert_same(Cache(tmp_path).fetch(KEY, some_arrays), some_arrays())


# Other processes


def start(directory, body):
    """A Python process with `cache`, `directory`, `KEY` and a `fetch(compute)` at hand, running `body`."""
    program = f"""
        import os, sys, time
        from pathlib import Path
        import numpy as np
        from oracles import cache
        directory, KEY = Path({str(directory)!r}), {KEY!r}
        def fetch(compute):
            return cache.Cache(directory).fetch(KEY, compute)
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program) + textwrap.dedent(body)], cwd=ROOT, stdout=subprocess.PIPE
    )


def wait_for(path):
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never appeared"
        time.sleep(0.01)


SLOW = """
    def compute():
        (directory / "started").touch()
        time.sleep({seconds})
        return {{"x": np.full(3, os.getpid())}}
    print(*fetch(compute)["x"])
"""


def test_a_second_process_waits_and_reads_what_the_first_wrote(tmp_path):
    with start(tmp_path, SLOW.format(seconds=1)) as first:
        wait_for(tmp_path / "started")
        found = Cache(tmp_path).fetch(KEY, never)
        assert found["x"].tolist() == [first.pid] * 3
        assert first.communicate()[0].split() == [str(first.pid).encode()] * 3


def test_another_key_does_not_wait(tmp_path):
    with start(tmp_path, SLOW.format(seconds=60)) as other:
        wait_for(tmp_path / "started")
        began = time.monotonic()
        Cache(tmp_path).fetch(digest({}, "another"), some_arrays)
        assert time.monotonic() - began < 20
        other.kill()


def test_a_process_killed_while_it_computes_leaves_no_lock(tmp_path):
    with start(tmp_path, SLOW.format(seconds=60)) as victim:
        wait_for(tmp_path / "started")
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        began = time.monotonic()
        assert_same(Cache(tmp_path).fetch(KEY, some_arrays), some_arrays())
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_process_killed_while_it_writes_leaves_no_half_entry(tmp_path, call):
    body = f"""
        os.{call} = lambda *arguments: os.kill(os.getpid(), 9)
        fetch(lambda: {{"x": np.ones(1000)}})
    """
    with start(tmp_path, body) as victim:
        assert victim.wait() == -signal.SIGKILL
    assert list(tmp_path.glob("*.tmp")), "it was killed before it wrote"
    assert not list(tmp_path.glob("*.entry"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(Cache(tmp_path).fetch(KEY, some_arrays), some_arrays())
        assert_same(Cache(tmp_path).fetch(KEY, never), some_arrays())
