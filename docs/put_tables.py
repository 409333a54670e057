"""What commands that print the tables of a page have in common: a minus is a minus, and `--write` puts them there."""

import argparse
import re
from pathlib import Path
from typing import NamedTuple


class Place(NamedTuple):
    """Tables, and the page that has them between two comments."""

    tables: str
    page: Path
    begin: str
    end: str


def with_minus(tables: str) -> str:
    """Hyphens before numbers as minus signs."""
    return re.sub(r"(?<=[ (])-(?=[.\d])", "−", tables)


def main(about: str, *places: Place) -> None:
    """Print tables, or write them into their pages."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    for tables, page, begin, end in places:
        if write:
            before, _, rest = page.read_text().partition(begin)
            page.write_text(f"{before}{begin}\n{tables}\n\n{end}{rest.partition(end)[2]}")
        else:
            print(tables)
