"""A mistake as a small edit of right source code: the modules that it concerns are executed once more with the edit
made, and all others stay as they are.
"""

import ast
import importlib
import inspect
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Edit:
    """In the source of `module`, `old` (which must stand there exactly once) becomes `new`."""

    module: str
    old: str
    new: str


def edited(target: str, *edits: Edit) -> Any:
    """What `package.module:name` would be, a function or a record, with `edits` made.

    Copies are executed of the edited modules, and of those between them and the target; all others are shared with the
    rest of the process, so that a class that is not edited is the same class. Copies are not type-checked on calls.
    Raises ValueError where `old` does not occur exactly once, or where the target does not import an edited module.
    """
    name, _, attribute = target.partition(":")
    importlib.import_module(name)
    concerned = _concerned(name, {edit.module for edit in edits})
    missing = sorted({edit.module for edit in edits} - set(concerned))
    if missing:
        raise ValueError(f"{target} does not import {', '.join(missing)}: an edit there would change nothing")
    sources = {module: _edited_source(module, edits) for module in concerned}
    with _replaced_modules():
        for module, source in sources.items():
            _execute(module, source)
        return getattr(sys.modules[name], attribute)


def is_within(target: str, *edits: Edit) -> bool:
    """Whether every edit is in a module that `target` is made of."""
    name = target.partition(":")[0]
    importlib.import_module(name)
    modules = {edit.module for edit in edits}
    return modules <= set(_concerned(name, modules))


def _concerned(target: str, edited_modules: set[str]) -> list[str]:
    """The edited modules and those that import them, up to the target, imported ones first."""
    packages = {name.partition(".")[0] for name in (target, *edited_modules)}
    order: list[str] = []
    seen: set[str] = set()

    def visit(module: str) -> None:
        if module in seen:
            return
        seen.add(module)
        imports = [name for name in _imports(module) if name.partition(".")[0] in packages]
        for name in imports:
            visit(name)
        if module in edited_modules or any(name in order for name in imports):
            order.append(module)

    visit(target)
    return order


@cache
def _imports(module: str) -> tuple[str, ...]:
    """The modules that `module` imports from, anywhere in its source."""
    names = []
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(dict.fromkeys(name for name in names if name in sys.modules))


@cache
def _source(module: str) -> str:
    return inspect.getsource(sys.modules[module])


def _edited_source(module: str, edits: tuple[Edit, ...]) -> str:
    source = _source(module)
    for edit in edits:
        if edit.module == module:
            count = source.count(edit.old)
            if count != 1:
                raise ValueError(f"{module} must hold exactly once what is edited; it holds {count} times\n{edit.old}")
            source = source.replace(edit.old, edit.new)
    return source


def _execute(name: str, source: str) -> None:
    """Put a copy of the module into `sys.modules`, and where its package keeps it."""
    original = sys.modules[name]
    copy = ModuleType(name, original.__doc__)
    copy.__file__, copy.__package__, copy.__spec__ = original.__file__, original.__package__, original.__spec__
    package, _, leaf = name.rpartition(".")
    sys.modules[name] = copy
    setattr(sys.modules[package], leaf, copy)
    # A name of its own: a traceback shows the edited lines, and no debugger mistakes them for those on the disk.
    filename = f"{original.__file__} (edited, {hash(source) & 0xFFFFFFFF:08x})"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), vars(copy))


@contextmanager
def _replaced_modules() -> Iterator[None]:
    """Undo, whatever happens, what `_execute` does to `sys.modules` and to packages."""
    before = dict(sys.modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if sys.modules.get(name) is not module:
                sys.modules[name] = module
                package, _, leaf = name.rpartition(".")
                setattr(sys.modules[package], leaf, module)
