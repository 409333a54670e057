"""Tutorials as Jupyter notebooks, with the outputs that their pages show.

python docs/notebooks.py FOLDER

A notebook holds what its page holds, so that `check_pages.py`, which runs the page, has run the notebook as well.
"""

import base64
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat.v4 as notebook
from check_pages import FENCE, blocks_of
from nbformat import NotebookNode, validate, write

DOCS = Path(__file__).resolve().parent
PICTURE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<path>[^)]*\.png)\)")


def tutorials() -> list[Path]:
    """Pages that become notebooks."""
    return sorted((DOCS / "tutorials").glob("*.md"))


def of(page: Path) -> NotebookNode:
    """A notebook of the words, the code, what it prints and the pictures of one page."""
    cells = list(_cells(page))
    for number, cell in enumerate(cells):
        # the same page makes the same file
        cell["id"] = f"cell-{number}"
    made = notebook.new_notebook(cells=cells, metadata={"kernelspec": _KERNEL})
    validate(made)
    return made


_KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def _cells(page: Path) -> Iterator[NotebookNode]:
    text, code = page.read_text(), None
    blocks = list(blocks_of(text))
    starts = [fence.start() for fence in FENCE.finditer(text)]
    ends = [fence.end() for fence in FENCE.finditer(text)]
    for begin, block, start in zip([0, *ends], [*blocks, None], [*starts, len(text)], strict=True):
        words = text[begin:start]
        if code is not None:
            code["outputs"] += [_picture(page, found) for found in PICTURE.finditer(words)]
        if said := _plain(words):
            yield notebook.new_markdown_cell(said)
        if block is None:
            return
        if block.language == "python":
            yield (code := notebook.new_code_cell(block.code.strip()))
        elif block.language == "text" and code is not None and not block.skipped:
            code["outputs"].append(notebook.new_output("stream", name="stdout", text=block.code))
        else:
            yield notebook.new_markdown_cell(text[start : block.end] + "```")


def _picture(page: Path, found: re.Match) -> NotebookNode:
    image = base64.b64encode((page.parent / found["path"]).read_bytes()).decode()
    return notebook.new_output("display_data", data={"image/png": image, "text/plain": found["alt"]})


def _plain(words: str) -> str:
    """Markdown that Jupyter reads: no comments, no roles, and no links to pages that a notebook has not beside it."""
    words = PICTURE.sub("", words)
    words = re.sub(r"^%.*$", "", words, flags=re.MULTILINE)
    words = re.sub(r"\{\w+\}`(?:[^`<]*<)?([^`>]*)>?`", lambda role: f"`{role[1].rsplit('/', 1)[-1]}`", words)
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", words).strip()


def write_all(folder: Path) -> None:
    """Write a notebook of every tutorial."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in tutorials():
        write(of(page), folder / f"{page.stem}.ipynb")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
