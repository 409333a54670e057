"""Limits on lines of modules and bodies, on parameters and on scopes, and what may change once it is made."""

import ast
import io
import symtable
import tokenize
from pathlib import Path

import pytest

import numpyro_symmetry

PACKAGE = Path(numpyro_symmetry.__file__).parent
MOST_LINES, MOST_CODE_LINES, MOST_PARAMETERS = 400, 60, 8
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source):
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {line for t in tokens if t.type not in LAYOUT for line in range(t.start[0], t.end[0] + 1)}


def body_of(function):
    first = function.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
    return function.body[has_docstring:]


def parameters_of(function):
    names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def functions_of(tree, owner=""):
    """Functions of a module, each with its name in public: that of its class, if it makes one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node, owner if node.name == "__init__" else node.name
        yield from functions_of(node, node.name if isinstance(node, ast.ClassDef) else owner)


def over_the_limits():
    for path in sorted(PACKAGE.rglob("*.py")):
        source, where = path.read_text(), path.relative_to(PACKAGE).as_posix()
        if len(source.splitlines()) > MOST_LINES:
            yield where
        lines = code_lines(source)
        for function, public in functions_of(ast.parse(source)):
            body = body_of(function)
            if body and len(lines & set(range(body[0].lineno, body[-1].end_lineno + 1))) > MOST_CODE_LINES:
                yield f"{where}:{function.name}"
            count = len(parameters_of(function))
            if count > MOST_PARAMETERS and public not in numpyro_symmetry.__all__:
                yield f"{where}:{function.name}({count})"


def test_nothing_is_over_a_limit():
    assert not set(over_the_limits()), "split it by purpose, or pass what belongs together as one value"


def shadowed(table):
    """Names that one comprehension of a function binds, and that another, or the function, takes from the module."""
    inner = table.get_children()
    if table.get_type() == "function":
        comprehensions = [part for part in inner if part.get_name() in ("listcomp", "dictcomp", "setcomp")]
        bound = {x.get_name() for part in comprehensions for x in part.get_symbols() if x.is_local()}
        taken = {x.get_name() for part in (table, *inner) for x in part.get_symbols() if x.is_global()}
        yield from (f"{table.get_name()}: {name}" for name in bound & taken)
    for part in inner:
        yield from shadowed(part)


def test_no_comprehension_shadows_what_another_one_takes_from_the_module():
    """Python 3.12 makes both one scope, and then says that the name has no value; 3.11 has them apart, and sees it."""
    code = "def each(): pass\ndef f(x):\n    y = [each for each in x]\n    return [each() for k in y]"
    if list(shadowed(symtable.symtable(code, "", "exec"))) != ["f: each"]:
        pytest.skip("this Python has comprehensions in no table of their own")
    for path in PACKAGE.rglob("*.py"):
        assert not list(shadowed(symtable.symtable(path.read_text(), str(path), "exec"))), path


# what is filled in as a program is walked, as random numbers are drawn, as steps are told
FILLED_IN = {"_Value", "Walk", "Uniform", "Atom", "Reading", "_Proof", "_Speaker"}


def test_what_is_passed_in_or_returned_cannot_change():
    made = [
        (node.name, [ast.unparse(x) for x in getattr(decorator, "keywords", [])])
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).partition("(")[0] == "dataclass"
    ]
    assert len(made) > 30
    assert {name for name, options in made if "frozen=True" not in options} == FILLED_IN
