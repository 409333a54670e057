"""Nouns that do not agree with the number before them."""

import re

# a one that no number, fraction or product goes before, and the plural of what is counted; NumPy says of ragged lists
# "shape after 1 dimensions"
MANY_OF_ONE = re.compile(
    r"(?<![\d.,×/^-])(?<![×=] )(?<!shape after )(?<!and )\b1 (independent |non-finite |leading )?"
    r"(draw|chain|round|step|entrie|axe|indice|value|element|point|label|member|row|site|unit|component|dimension|block|pair|slot|group|size|number|time|argument|"
    r"name|particle|observation|permutation|effective draw)s\b"
)
