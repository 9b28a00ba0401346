"""A cache of oracle results on disk: keyed by inputs and oracle source, written atomically, checked on reading."""

import functools
import hashlib
import io
import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import flint
import numpy as np
from filelock import FileLock

SOURCE = Path(__file__).parent

Arrays = dict[str, np.ndarray]


class DamagedCacheEntry(UserWarning):
    """An entry on disk was not what had been written; it was computed again and replaced."""


class UnusableCache(UserWarning):
    """The cache directory cannot be read, locked or written; results are computed without it."""


def digest(arrays: Mapping[str, np.ndarray], *parts: str) -> str:
    """The key of a result: SHA-256 of its inputs, the oracles' source, and the numpy and python-flint versions.

    `arrays`: the inputs by name, in any order and of any shape. `parts`: whatever else the result depends on.
    Raises TypeError on an array of Python objects.
    """
    hasher = hashlib.sha256()
    for field in _fields(arrays, parts):
        # Each field by its length, so that no two sequences of fields read the same.
        hasher.update(len(field).to_bytes(8, "little"))
        hasher.update(field)
    return hasher.hexdigest()


class Cache:
    """Results in `directory`, one file a key: the SHA-256 of the payload in hex, a newline, and the payload, an npz.

    An entry is renamed into place when it is complete, so a reader meets the whole of it or none. A key is locked while
    it is read or computed: a second process waits for the first and reads what it wrote, and the lock of a process that
    was killed is released by the kernel. Lock files and the temporary files of killed processes stay and do no harm.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._warned = False

    def fetch(self, key: str, compute: Callable[[], Arrays]) -> Arrays:
        """The arrays stored under `key`, a `digest`; those of `compute()`, which are then stored, where there are none.

        Warns with DamagedCacheEntry where an entry had to be replaced, and once with UnusableCache where the directory
        cannot be used. Raises ValueError on an array of Python objects, and whatever `compute` raises.
        """
        path = self.directory / f"{key}.entry"
        with ExitStack() as stack:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                stack.enter_context(FileLock(f"{path}.lock"))
                found = _read(path)
            except OSError as error:
                self._warn(error)
                return compute()
            if found is not None:
                return found
            arrays = compute()
            try:
                _write(path, arrays)
            except OSError as error:
                self._warn(error)
            return arrays

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            warnings.warn(f"no oracle cache in {self.directory}: {error}", UnusableCache, stacklevel=3)
        self._warned = True


def _fields(arrays: Mapping[str, np.ndarray], parts: tuple[str, ...]) -> Iterator[bytes]:
    yield str(len(arrays)).encode()
    for name, array in sorted(arrays.items()):
        if array.dtype.hasobject:
            raise TypeError(f"{name} holds Python objects ({array.dtype}), and their bytes are addresses")
        # The name tells the 8-bit floats apart, which share a str; the str tells the byte order.
        yield from (name.encode(), f"{array.dtype.name} {array.dtype.str} {array.shape}".encode(), array.tobytes())
    yield from (part.encode() for part in parts)
    yield _source_digest()
    yield f"numpy {np.__version__} python-flint {flint.__version__}".encode()


@functools.cache
def _source_digest() -> bytes:
    """SHA-256 of every source file of the oracles, tests excepted; read once a process."""
    hasher = hashlib.sha256()
    for path in sorted(SOURCE.rglob("*.py")):
        if not path.name.startswith("test_"):
            source = path.read_bytes()
            hasher.update(f"{path.relative_to(SOURCE).as_posix()} {len(source)}\n".encode() + source)
    return hasher.digest()


def _read(path: Path) -> Arrays | None:
    """The arrays of an entry; None where there is none, or a damaged one, of which it warns."""
    try:
        header, _, payload = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if header != _seal(path, payload):
        warnings.warn(f"damaged cache entry, computed again: {path}", DamagedCacheEntry, stacklevel=3)
        return None
    with np.load(io.BytesIO(payload), allow_pickle=False) as entry:
        return dict(entry)


def _seal(path: Path, payload: bytes) -> bytes:
    """Of the key too: an entry that was copied to another key's name is a damaged one."""
    return hashlib.sha256(path.stem.encode() + b"\n" + payload).hexdigest().encode()


def _write(path: Path, arrays: Arrays) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    payload = buffer.getvalue()
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, suffix=".tmp", delete=False) as file:
        try:
            file.write(_seal(path, payload) + b"\n" + payload)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
