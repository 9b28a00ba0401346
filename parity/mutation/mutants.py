"""Mutants of a module: copies of its source in which one operator, constant, name or statement is another."""

import ast
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
OPPOSITES = {"any": "all", "max": "min", "argmax": "argmin", "isfinite": "isnan", "zeros_like": "ones_like"}
NAMES = OPPOSITES | {opposite: name for name, opposite in OPPOSITES.items()} | {"mean": "sum", "abs": "negative"}


@dataclass(frozen=True)
class Mutant:
    """`line`: of the statement in the original; `before`, `after`: its first line, as it was and as it is here."""

    line: int
    before: str
    after: str
    source: str

    @property
    def change(self) -> str:
        return f"{self.before}  ->  {self.after}"


def mutants(source: str) -> list[Mutant]:
    """Every mutant of `source` once, in its order. Docstrings, messages and annotations stay as they are."""
    body = ast.parse(source).body
    texts = [ast.unparse(top) for top in body]
    found: dict[tuple[int, str], Mutant] = {}
    for number, top in enumerate(body):  # only the text of the one that changes is made anew
        alone = ast.Module([top], [])
        for node, statement in list(_places(top)):
            before = _head(statement)
            for replacement in _replacements(node):
                with _replaced(alone, node, replacement):
                    text = ast.unparse(ast.fix_missing_locations(alone))
                    after = _head(replacement if node is statement else statement)
                if text != texts[number]:
                    whole = "\n".join([*texts[:number], text, *texts[number + 1 :]])
                    found.setdefault((number, text), Mutant(statement.lineno, before, after, whole))
    return sorted(found.values(), key=lambda mutant: mutant.line)


def _places(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.stmt]]:
    """Every node that may be replaced, with the statement that it stands in."""

    def walk(node: ast.AST, statement: ast.stmt | None) -> Iterator[tuple[ast.AST, ast.stmt]]:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr) or _is_docstring(node):
            return
        if isinstance(node, ast.stmt):
            statement = node
        if statement is not None:
            yield node, statement
        if isinstance(node, ast.Raise):  # its message is for people
            return
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, statement)

    return walk(tree, None)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in COMPARISONS[type(op)]:
                    yield _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
        case ast.BinOp() if type(node.op) in OPERATORS:
            yield _with(node, op=OPERATORS[type(node.op)]())
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            yield from node.values
        case ast.UnaryOp():
            yield node.operand
        case ast.IfExp():
            yield from (node.body, node.orelse)
        case ast.If() if not isinstance(node.test, ast.Compare | ast.UnaryOp):  # they are negated below
            yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension() if node.ifs:
            yield _with(node, ifs=[])
        case ast.Slice():
            yield from (_with(node, **{bound: None}) for bound in ("lower", "upper") if getattr(node, bound))
        case ast.Raise() | ast.Expr():
            yield ast.Pass()
        case ast.Call():
            for i in range(len(node.keywords)):
                yield _with(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])
        case ast.Name() if node.id in NAMES:
            yield _with(node, id=NAMES[node.id])
        case ast.Attribute() if node.attr in NAMES:
            yield _with(node, attr=NAMES[node.attr])
        case ast.Constant():
            yield from (ast.Constant(value) for value in _other_values(node.value))


def _other_values(value: object) -> tuple[bool | int | float | str, ...]:
    match value:
        case bool():
            return (not value,)
        case int():
            return (value + 1,)
        case float():
            return (2 * value + 1,)
        case str():
            return (value + "x",)
    return ()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


@contextmanager
def _replaced(tree: ast.AST, old: ast.AST, new: ast.AST) -> Iterator[None]:
    """`new` stands where `old` does, until the end of the block."""
    originals = [
        (parent, name, value)
        for parent in ast.walk(tree)
        for name, value in ast.iter_fields(parent)
        if value is old or (isinstance(value, list) and any(child is old for child in value))
    ]
    for parent, name, value in originals:
        changed = [new if child is old else child for child in value] if isinstance(value, list) else new
        setattr(parent, name, changed)
    try:
        yield
    finally:
        for parent, name, value in originals:
            setattr(parent, name, value)


def _head(statement: ast.AST) -> str:
    return ast.unparse(statement).splitlines()[0]
