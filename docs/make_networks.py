"""Print the tables of networks brought together that `benchmarks.md` holds, or put them into the page.

python docs/make_networks.py [--write]
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.reproduction import networks_table  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- networks: python docs/make_networks.py -->\n", "<!-- end of the networks -->"


def tables() -> str:
    """All tables, as the page has them."""
    return re.sub(r"(?<=[ (])-(?=[.\d])", "−", networks_table.tables())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{tables()}\n\n{END}{rest.partition(END)[2]}")
    else:
        print(tables())


if __name__ == "__main__":
    main()
