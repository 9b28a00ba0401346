"""Load implementations that are not in this repository: `FILE.py:NAME` or `package.module:NAME`."""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import implementations
from implementations.contract import Implementation


class CannotLoad(Exception):
    """An `--implementation` that names nothing to run; the message says what was given and what is expected."""


def load(specs: Sequence[str]) -> tuple[Implementation, ...]:
    """The implementations that `specs` name, in order. A name may be one Implementation or a sequence of them.

    Raises CannotLoad on a spec that cannot be read, a file, module or name that is not there, a module that raises, an
    object of another type, on two implementations with one name, and on one with the name of one of the suite's own.
    """
    found = [implementation for spec in specs for implementation in _load_one(spec)]
    names = [implementation.name for implementation in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CannotLoad(f"more than one implementation is called {', '.join(twice)}: test ids need names of their own")
    ours = {implementation.name: implementation for implementation in implementations.ALL + implementations.VARIANTS}
    taken = [x.name for x in found if x is not ours.get(x.name, x)]
    if taken:  # a row of the table of limits may speak of that name
        raise CannotLoad(f"{', '.join(taken)}: the suite's own implementation has that name; choose another")
    return tuple(found)


def _load_one(spec: str) -> tuple[Implementation, ...]:
    where, colon, name = spec.rpartition(":")
    if not (where and colon and name.isidentifier()):
        raise CannotLoad(f"{spec!r}: expected FILE.py:NAME or package.module:NAME")
    module = _module_of_file(spec, Path(where)) if where.endswith(".py") else _module_of_package(spec, where)
    if not hasattr(module, name):
        there = sorted(n for n, x in vars(module).items() if isinstance(x, Implementation))
        raise CannotLoad(f"{spec!r}: {where} has no {name}; its implementations are {', '.join(there) or 'none'}")
    value = getattr(module, name)
    values = (value,) if isinstance(value, Implementation) else value
    if not isinstance(values, list | tuple) or not values or not all(isinstance(x, Implementation) for x in values):
        raise CannotLoad(
            f"{spec!r}: {name} must be an implementations.Implementation or a non-empty sequence of them; "
            f"it is {value!r:.80}"
        )
    return tuple(values)


def _module_of_file(spec: str, path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise CannotLoad(f"{spec!r}: there is no file {path}")
    # One name a path: the same file named twice is one module, two files of one name are two.
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    source = importlib.util.spec_from_file_location(name, path)
    assert source is not None
    assert source.loader is not None
    module = importlib.util.module_from_spec(source)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # as for a script: the file may import its neighbours
    try:
        source.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise _raised(spec, error) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _module_of_package(spec: str, name: str) -> ModuleType:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CannotLoad(f"{spec!r}: there is no module {error.name}") from error
        raise _raised(spec, error) from error
    except BaseException as error:
        raise _raised(spec, error) from error
    finally:
        sys.path.remove("")


def _raised(spec: str, error: BaseException) -> CannotLoad:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    own = [f for f in frames if f.filename != __file__]
    text = "".join(traceback.format_list(own)) + "".join(traceback.format_exception_only(error))
    return CannotLoad(f"{spec!r}: it raised when it was imported\n{text.rstrip()}")
