"""What the pages of the API list: names, what they stand for, and the sections of their docstrings."""

import importlib
import inspect
import re
from functools import cache
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
LISTED = re.compile(r"^ {3}([A-Za-z_]+(?:\.[A-Za-z_]+)*)$", re.MULTILINE)
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n(.*?)(?=^\w[\w ]*\n-{3,}\n|\Z)", re.MULTILINE | re.DOTALL)


@cache
def names():
    """Public name -> what it stands for."""
    pages = {"api.md": "numpyro_symmetry", "testing.md": "numpyro_symmetry.testing"}
    return {
        f"{package}.{name}": named(f"{package}.{name}")
        for page, package in pages.items()
        for name in LISTED.findall((DOCS / page).read_text())
    }


def named(path):
    """What stands at a dotted path, whose first parts may be modules."""
    first, *rest = path.split(".")
    found = importlib.import_module(first)
    for k, part in enumerate(rest):
        found = (
            getattr(found, part) if hasattr(found, part) else importlib.import_module(".".join([first, *rest[: k + 1]]))
        )
    return found


def sections(value):
    """Title of a section of the docstring -> its text."""
    return dict(SECTION.findall(inspect.getdoc(value) or ""))


def entries(text):
    """The names that a section lists: those of its lines that are not indented."""
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", ">", "."))]
    return [name.strip() for line in lines for name in line.split(":")[0].split(",")]


@cache
def codes():
    """Code of every public function, and of what makes an instance of a public class -> its public name."""
    found = {}
    for name, value in names().items():
        makers = [vars(value).get(how) for how in ("__init__", "__post_init__")] if inspect.isclass(value) else [value]
        functions = (inspect.unwrap(getattr(one, "__func__", one)) for one in makers if one is not None)
        found |= {one.__code__: name for one in functions if inspect.isfunction(one)}
    return found


def entered(error):
    """The public name of the function that a user called and that this error left; ``None`` if it was no public one."""
    trace = error.__traceback__
    while trace is not None:
        if (name := codes().get(trace.tb_frame.f_code)) is not None:
            return name
        trace = trace.tb_next
    return None
