"""What commands that print the tables of a page have in common: a minus is a minus, and `--write` puts them there."""

import argparse
import re
from pathlib import Path


def with_minus(tables: str) -> str:
    """Hyphens before numbers as minus signs."""
    return re.sub(r"(?<=[ (])-(?=[.\d])", "−", tables)


def main(about: str, tables: str, page: Path, begin: str, end: str) -> None:
    """Print tables, or write them between two comments of a page."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        before, _, rest = page.read_text().partition(begin)
        page.write_text(f"{before}{begin}\n{tables}\n\n{end}{rest.partition(end)[2]}")
    else:
        print(tables)
