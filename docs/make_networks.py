"""Print the tables of networks brought together that `benchmarks.md` holds, or put them into the page.

python docs/make_networks.py [--write]
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import put_tables  # noqa: E402

from tests.reproduction import networks_table  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- networks: python docs/make_networks.py -->\n", "<!-- end of the networks -->"


def tables() -> str:
    """All tables, as the page has them."""
    return put_tables.with_minus(networks_table.tables())


if __name__ == "__main__":
    put_tables.main(__doc__.splitlines()[0], put_tables.Place(tables(), PAGE, BEGIN, END))
