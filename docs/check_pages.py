"""Run the code of pages, and compare what it prints with what the pages show.

python docs/check_pages.py [PAGE ...] [--write] [--exact]      all pages with code if none is named

Every page runs in a process of its own, in an empty directory, block after block, as a reader would who copies them. A page
that says `% continues: index` is run after the page it names. What counts, from top to bottom:

- a `python` block runs; a code block with a caption that ends in `.py` is written to the file of that name;
- the `text` block after it holds what was printed since the last one, warnings of this package and a raised error included;
- lines that begin with `>>>` are doctests;
- `% not run` above a block, or `<!-- not run -->`, leaves it alone;
- code in the last column of a table below `% cells run` is evaluated: expressions, and options as they stand in a call.

Words must agree. A number may differ by 5 %, and one with decimals by two units of the last, for samplers and float32 sums are
not the same on every machine: counts below twenty are as shown. `--exact` allows nothing. `--write` puts what was printed into the page instead, and pictures that a page
saves under the name of one it shows into `images/`.
"""

import argparse
import contextlib
import doctest
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^% cells run\n+[^\n]*\n[^\n]*\n(?P<rows>(?:\|[^\n]*\n)+)", re.MULTILINE)
# code, and no role
SPAN = re.compile(r"(?<!\})`([^`]+)`")
CONTINUES = re.compile(r"^% continues: (\S+)$", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
WIDTH = 118


class Block(NamedTuple):
    """A fenced block: its language, its text without directive options, where it stands."""

    language: str
    caption: str
    code: str
    start: int
    end: int
    line: int
    skipped: bool


def blocks_of(text: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        info, body = found["info"].strip(), found["body"]
        caption = ""
        start = found.start("body")
        if info.startswith("{code-block}"):
            info = info.removeprefix("{code-block}").strip()
            options = re.match(r"(?::[\w-]+:[^\n]*\n)*\n?", body)
            caption = next(iter(re.findall(r"^:caption: (.*)$", options[0], re.MULTILINE)), "")
            body, start = body[options.end() :], start + options.end()
        above = text[: found.start()].rstrip("\n").rsplit("\n", 1)[-1]
        line = text.count("\n", 0, start) + 1
        yield Block(info, caption, body, start, found.end("body"), line, above in ("% not run", "<!-- not run -->"))


def cells_of(text: str) -> Iterator[Block]:
    """Code in the last column of tables that say so."""
    for table in TABLE.finditer(text):
        for row in re.finditer(r"^.*$", table["rows"], re.MULTILINE):
            start = table.start("rows") + row.start()
            for span in SPAN.findall(row[0].rstrip("| ").rpartition(" | ")[2]):
                yield Block("cell", "", span, start, start, text.count("\n", 0, start) + 1, False)


def same(shown: str, printed: str, *, exact: bool) -> bool:
    """Whether two outputs agree in words, and in numbers up to their last digits."""
    words = [re.sub(r"\s+", " ", NUMBER.sub("#", text)).strip() for text in (shown, printed)]
    # rules of tables follow the width of numbers
    if len({re.sub("[-─]{2,}", "--", text) for text in words}) > 1:
        return False
    for pair in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
        a, b = (float(number.replace("−", "-")) for number in pair)
        decimals = len(pair[0].partition("e")[0].partition(".")[2])
        allowed = 0.0 if exact else max(2 * 10.0**-decimals if decimals else 0.0, 0.05 * abs(a))
        if abs(a - b) > allowed * (1 + 1e-9):
            return False
    return True


def run(page: Path, *, write: bool, exact: bool) -> list[str]:
    """Run one page in the current directory and return what is wrong with it."""
    text = page.read_text()
    names: dict = {"__name__": "__main__"}
    if before := CONTINUES.search(text):
        for block in blocks_of((DOCS / f"{before[1]}.md").read_text()):
            execute(block, names)
    faults, edits, printed = [], [], ""
    for block in sorted([*blocks_of(text), *cells_of(text)], key=lambda block: block.start):
        where = f"{page.name}:{block.line}"
        if block.skipped:
            continue
        if block.language == "text":
            if not printed.strip():
                faults.append(f"{where}: nothing was printed that this could be; write '% not run' above it")
            elif not same(block.code, printed, exact=exact):
                faults.append(f"{where}: shown\n{block.code}\nprinted\n{printed}")
                edits.append((block.start, block.end, printed))
            printed = ""
        elif block.language == "cell":
            faults += evaluated(block, names, where)
        elif ">>> " in block.code:
            faults += [f"{where}: {fault}" for fault in doctests(block, names, where)]
        elif block.language == "python":
            printed += execute(block, names)
    if printed.strip():
        faults.append(f"{page.name}: printed, and not shown\n{printed}")
    if write:
        for start, end, new in reversed(edits):
            text = text[:start] + new.strip("\n") + "\n" + text[end:]
        page.write_text(text)
        for picture in re.findall(r"images/([\w-]+\.png)", text):
            if Path(picture).exists():
                shutil.copy(picture, DOCS / "images" / picture)
    return faults


def execute(block: Block, names: dict) -> str:
    """What a block prints, the error that it raises included."""
    if block.language != "python" or block.skipped or ">>> " in block.code:
        return ""
    if block.caption.endswith(".py"):
        Path(block.caption).write_text(block.code)
        return ""
    out = io.StringIO()

    def show(message, category, *_, **__):
        if category.__module__.startswith("numpyro_symmetry"):
            out.write("\n".join(textwrap.wrap(f"{category.__name__}: {message}", WIDTH)) + "\n")

    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        try:
            exec(compile(block.code, "example.py", "exec"), names)
        except Exception as error:
            if not type(error).__module__.startswith("numpyro_symmetry"):
                raise
            out.write("\n".join(textwrap.wrap(f"{type(error).__name__}: {error}", WIDTH)) + "\n")
    return out.getvalue()


def evaluated(block: Block, names: dict, where: str) -> list[str]:
    """What is wrong with code in a table: an expression, or options of a call."""
    try:
        try:
            code = compile(block.code, where, "eval")
        except SyntaxError:
            code = compile(f"dict({block.code})", where, "eval")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            eval(code, names)
    except Exception as error:
        return [f"{where}: `{block.code}`: {type(error).__name__}: {error}"]
    return []


def doctests(block: Block, names: dict, where: str) -> list[str]:
    test = doctest.DocTestParser().get_doctest(block.code, names, where, None, 0)
    said = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False)
    runner.run(test, out=said.write, clear_globs=False)
    names.update(test.globs)
    return [said.getvalue()] if runner.failures else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    pages = [page.resolve() for page in options.pages] or sorted(
        page
        for page in DOCS.rglob("*.md")
        if "generated" not in page.parts
        and "_build" not in page.parts
        and any(block.language == "python" and not block.skipped for block in blocks_of(page.read_text()))
    )
    if options.here:
        sys.path[0] = ""
        faults = run(pages[0], write=options.write, exact=options.exact)
        print("\n".join(faults))
        return bool(faults)
    failed = []
    for page in pages:
        flags = [name for name in ("--write", "--exact") if getattr(options, name[2:])]
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as empty:
            ran = subprocess.run(
                [sys.executable, __file__, "--here", *flags, page],
                cwd=empty,
                env={"JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"} | os.environ,
                capture_output=True,
                text=True,
                check=False,
            )
        seconds = time.perf_counter() - began
        print(f"{'FAILED' if ran.returncode else 'passed'} {os.path.relpath(page, DOCS)} {seconds:.0f} s", flush=True)
        if ran.returncode:
            print(ran.stdout, ran.stderr[-3000:], flush=True)
            failed.append(page)
    print(f"{len(pages) - len(failed)} passed, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
