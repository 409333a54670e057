"""What is spoken of: a NumPyro model with its sites, or a function with the arrays in one of its arguments.

Knows words only.
"""

from __future__ import annotations

from typing import NamedTuple


class Nouns(NamedTuple):
    """Words for messages.

    Attributes
    ----------
    whole
        What has a symmetry.
    array
        What its groups stand on.
    key
        What names one of these in a mapping of values.
    result
        What is to stay as it is.
    latent
        What is moved.
    centre, not_finite
        About what a symmetry is tried, and the reason given where there are no numbers there.
    kind
        What is expected, as a callable.
    arguments, one_by_one
        How its arguments are given, and where else in another way.
    if_bare
        What may be meant where it is given none.
    mask
        How a mask is given, behind "as an argument".
    """

    whole: str
    array: str
    key: str
    result: str
    latent: str
    centre: str
    not_finite: str
    kind: str
    arguments: str
    one_by_one: str
    if_bare: str
    mask: str

    def named(self, name: str) -> str:
        """One of the arrays, where a sentence begins."""
        return f"{self.array.capitalize()} {name!r}"


MODEL = Nouns(
    whole="model",
    array="site",
    key="site",
    result="log joint",
    latent="a latent value",
    centre="the prior",
    not_finite="the log joint is not finite about the prior",
    kind="a NumPyro model, a function that samples sites",
    arguments="(x, y)",
    one_by_one=", or one by one where a guide takes them, as SVI does",
    if_bare=(
        " Is it a function of parameters and no NumPyro model? Then pass one set of these, and say so by argnum=0, "
        "as in find_symmetry(function, (parameters,), argnum=0), whose result other functions take as symmetry=."
    ),
    mask=" (numpyro.handlers.mask)",
)
FUNCTION = Nouns(
    whole="function",
    array="array",
    key="path",
    result="outputs",
    latent="a value of its parameters",
    centre="its parameters",
    not_finite="the outputs are not finite about its parameters",
    kind="a function of arrays, such as a network's apply",
    arguments="(params, x)",
    one_by_one="",
    if_bare="",
    mask="",
)


def nouns(*, is_function: bool) -> Nouns:
    """The nouns of a function, or of a model."""
    return FUNCTION if is_function else MODEL
