"""What is said of functions speaks of functions: nothing of a model, its sites, priors or supports."""

import pickle
import re
import warnings
from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_symmetry import (
    Complement,
    Symmetry,
    SymmetryError,
    SymmetryWarning,
    check_symmetry,
    find_activations,
    find_scaling,
    find_symmetry,
    log_evidence,
    loss_barrier,
)
from numpyro_symmetry.discovery.labels.rules.elementwise import elementwise
from numpyro_symmetry.discovery.messages import reason_of
from numpyro_symmetry.discovery.proof.diagnose import words
from numpyro_symmetry.discovery.proof.prove import Outcome
from numpyro_symmetry.symmetry.nouns import FUNCTION, MODEL
from numpyro_symmetry.traces.acting import act

RNG = np.random.default_rng(0)
W, V, X = (RNG.normal(size=shape).astype(np.float32) for shape in ((2, 3), (3, 1), (4, 2)))
PARAMS = {"w": W, "v": V}
UNITS = Symmetry({"w": (None, "unit"), "v": ("unit", None)})
OF_FUNCTION = replace(UNITS, nouns=FUNCTION)
FAMILY = Symmetry({("w", "v"): ("unit", None, None)})
MASKED = np.ma.masked_array(X, X > 0)
# names of arguments are what they are
OF_MODELS = re.compile(
    r"\bmodel\b(?! must be)|\bsites?\b|\bpriors?\b(?! it changes)|\bsupports?\b|\blatent\b|log joint|NUTS|SVI",
    re.IGNORECASE,
)


def network(params, x):
    """One layer of units that are not odd."""
    return jnp.maximum(x @ params["w"], 0.0) @ params["v"]


def branching(params, x):
    """Looks at a value."""
    return network(params, x) if params["w"][0, 0] > 0 else 2.0 * network(params, x)


def running(params):
    """Tells entries apart."""
    return jnp.cumsum(params["w"], axis=1).sum()


def checked(function, symmetry, *args):
    """A check of a function."""
    return lambda: check_symmetry(function, symmetry, args, argnum=0)


def signed(symmetry):
    """The same with signs."""
    return Symmetry(dict(symmetry.axes), kinds={"unit": "signed"})


SAID = {
    "branches": (lambda: find_symmetry(branching, (PARAMS, X), argnum=0), "The function needs the value"),
    "branches, checked": (checked(branching, UNITS, PARAMS, X), "The function needs the value"),
    "branches, scaled": (lambda: find_scaling(branching, (PARAMS, X), UNITS), "The function needs the value"),
    "an argument is missing": (lambda: find_symmetry(network, (PARAMS,), argnum=0), "The function network"),
    "keywords": (lambda: find_symmetry(network, (PARAMS, X), 3, argnum=0), "the function's arguments"),
    "no function": (lambda: find_symmetry(3, (PARAMS, X), argnum=0), "a function of arrays"),
    "masked": (lambda: find_symmetry(network, (PARAMS, MASKED), argnum=0), "the mask to the function as an argument"),
    "masked evidence": (
        lambda: log_evidence({"w": W[None]}, lambda p, x: p["w"].sum(), (PARAMS, MASKED), argnum=0),
        "the mask to the function as an argument",
    ),
    "an axis is missing": (checked(network, Symmetry({"w": (None, "unit")}), PARAMS, X), "of array 'v'"),
    "an axis too many": (
        checked(lambda p: (p["w"] @ jnp.arange(3.0)).sum(), Symmetry({"w": (None, "unit")}), PARAMS),
        "of array 'w': no other axis carries it",
    ),
    "signs too many": (checked(network, signed(UNITS), PARAMS, X), "the function is not odd in it"),
    "positive": (
        checked(lambda p: (p["w"] ** 2).sum(), signed(Symmetry({"w": (None, "unit")})), {"w": np.abs(W)}),
        "Array 'w' .* makes entries negative",
    ),
    "other widths": (
        lambda: find_scaling(network, (PARAMS, X), UNITS).balanced({"w": W[:, :2], "v": V[:2]}),
        "Array 'w' has shape",
    ),
    "an array is missing": (
        lambda: find_activations(network, (PARAMS, X), UNITS)({"w": W}),
        r"Arrays \['v'\] are missing from the parameters",
    ),
    "NaN": (
        lambda: find_scaling(network, (PARAMS, X), UNITS).balanced({"w": W * np.nan, "v": V}),
        "Array 'w' holds values that are not finite",
    ),
    "no mapping": (lambda: OF_FUNCTION.bind([1, 2]), "Values must map paths to arrays"),
    "a mapping in place of an array": (
        lambda: OF_FUNCTION.bind({"w": {"a": W}, "v": V}),
        r"Values hold mappings at \['w'\], and paths name arrays",
    ),
    "a family of other shapes": (
        lambda: replace(FAMILY, nouns=FUNCTION).bind({"w": W, "v": V}),
        "Array 'v' has shape .* of the same family, .*: arrays that are exchanged have one shape",
    ),
    "a family of other types": (
        lambda: replace(FAMILY, nouns=FUNCTION).apply({"unit": np.arange(2)}, {"w": W, "v": W.astype(np.float16)}),
        "Array 'v' has type float16",
    ),
    "a family without one of its arrays": (
        lambda: replace(FAMILY, nouns=FUNCTION).restrict(sites=["w"]),
        r"Array 'w' is exchanged with \['v'\]",
    ),
    "fibres without their axis": (
        lambda: OF_FUNCTION.on_axes({"w": (None, "head/unit")}),
        "Array 'w': group 'head/unit' is fibred over 'head', which stands on 0 of the array's axes",
    ),
    "the rest of a whole, with signs": (
        lambda: OF_FUNCTION.on_axes({"w": (Complement("unit"), None, None)}, {"unit": "signed"}),
        "Array 'w': .* exchanges two parts of a whole",
    ),
    "other groups, of draws": (
        lambda: act({"w": W[None]}, OF_FUNCTION.bind(PARAMS), {"w": ("head", None)}, {}),
        r"axes of array 'w' name groups \['head'\]",
    ),
    "signs of draws of another type": (
        lambda: act({"w": W[None] > 0}, replace(signed(UNITS), nouns=FUNCTION).bind(PARAMS), {"w": (None, "unit")}, {}),
        "Array 'w': a sign cannot apply to values of type bool",
    ),
    "trees of other arrays": (
        lambda: loss_barrier(lambda tree: 0.0, [PARAMS, X], [PARAMS, {"x": X}]),
        r"different arrays: '1' is in the first end alone, '1\.x' is in the second alone",
    ),
    "trees of other shapes": (lambda: loss_barrier(lambda tree: 0.0, [W], [V]), "Array '0' has shape"),
}


@pytest.mark.parametrize("name", SAID)
def test_errors_of_functions_speak_of_functions(name):
    ask, said = SAID[name]
    with pytest.raises((TypeError, ValueError), match=said) as caught:
        ask()
    assert not OF_MODELS.findall(str(caught.value))


def test_what_shows_nothing_is_told_of_a_function():
    reason = check_symmetry(lambda p: 0.0 * p["w"].sum(), Symmetry({"w": (None, "unit")}), (PARAMS,), argnum=0).reason
    assert "does the function use these arrays?" in reason
    assert not OF_MODELS.findall(reason)


@pytest.mark.parametrize(
    ("is_function", "reads", "remedy"),
    [(True, "nothing", "smaller weights"), (False, "nothing but their own prior", "weights with a narrower prior")],
)
def test_what_rounding_decides_is_told_of_either(is_function, reads, remedy):
    frozen = SimpleNamespace(is_function=is_function, nouns=FUNCTION if is_function else MODEL)
    proof = SimpleNamespace(outcome=Outcome.ROUNDS, label="unit", frozen=frozen)
    said = words(proof)
    assert f"where rounding does not decide, {reads} depends on the " in said
    assert said.endswith(f"try fewer of them, or {remedy}.")
    assert bool(OF_MODELS.search(said)) != is_function
    assert reason_of(proof) == "inconclusive: nothing depends on it where rounding does not decide"


def test_what_data_without_rows_or_with_infinities_do_is_told():
    with pytest.warns(SymmetryWarning, match="zero, all alike, or without rows"):
        assert not find_symmetry(network, (PARAMS, X[:0]), argnum=0).groups
    assert "without rows" in check_symmetry(network, UNITS, (PARAMS, X[:0]), argnum=0).reason
    positive, infinite = {name: np.abs(x) for name, x in PARAMS.items()}, np.full_like(X, np.inf)
    with pytest.warns(SymmetryWarning, match="outputs are not finite .*look for infinities in its data"):
        assert not find_symmetry(network, (positive, infinite), argnum=0).groups


@pytest.mark.parametrize(
    ("function", "said"),
    [(running, "structure of the function, but failed"), (lambda p: jnp.log(-1.0 - p["w"] ** 2), "")],
)
def test_warnings_of_functions_speak_of_functions(function, said):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = find_symmetry(function, ({"w": W},), argnum=0, rules={"cumsum": elementwise})
    texts = [*(str(one.message) for one in caught), *(str(one.reason) for one in found.findings)]
    assert any(said in text for text in texts)
    assert not OF_MODELS.findall(" ".join(texts))


FOUND = find_symmetry(network, (PARAMS, X), argnum=0)
OF_A_SYMMETRY = {
    "missing": (lambda s: s.apply(s.identity(), {"w": W}), "Array 'v' is named by the symmetry but is not among"),
    "another width": (
        lambda s: s.bind({"w": W, "v": V[:2]}),
        "Array 'v' axis -2 has size 2, but group",
    ),
    "too few axes": (lambda s: s.bind({"w": W[0], "v": V[:, 0]}), r"Array 'v' has shape \(3,\), fewer axes"),
    "leading": (lambda s: s.bind(PARAMS, num_leading_dims=1), "Array '.' has shape .*: 1 leading dimension leaves"),
    "a batch": (
        lambda s: s.apply(s.identity((4,)), {"w": W[None].repeat(5, 0), "v": V[None].repeat(5, 0)}),
        r"Array '.' has leading dimensions \(5,\)",
    ),
    "masked": (lambda s: s.apply(s.identity(), PARAMS | {"w": np.ma.masked_array(W, W > 0)}), "Array 'w' is a masked"),
    "no such array": (lambda s: s.opened("u"), "Array 'u' is none of the symmetry's arrays"),
    "opened": (lambda s: s.opened_shape("w", (3,)), "Array 'w' has shape"),
    "restricted": (lambda s: s.restrict(sites=["u"]), "restrict names arrays"),
}
MADE = {
    "found": lambda s: s,
    "bound": lambda s: s.bind(PARAMS),
    "restricted": lambda s: s.restrict(list(s.groups)),
    "on some": lambda s: s.restrict(sites=["w", "v"]),
    "without signs": lambda s: s.without_signs(),
    "of differences": lambda s: s.of_differences(),
    "pickled": lambda s: pickle.loads(pickle.dumps(s)),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("name", OF_A_SYMMETRY)
def test_a_symmetry_of_a_function_speaks_of_arrays(name, made):
    ask, said = OF_A_SYMMETRY[name]
    with pytest.raises(SymmetryError, match=said) as caught:
        ask(MADE[made](FOUND))
    assert not OF_MODELS.findall(str(caught.value).replace("restrict(sites=...)", ""))


def test_what_is_spoken_of_is_no_part_of_a_symmetry():
    by_hand = Symmetry(dict(FOUND.axes), sizes=dict(FOUND.sizes))
    assert by_hand == FOUND
    assert hash(by_hand) == hash(FOUND)
    with pytest.raises(SymmetryError, match="Site 'v' is named"):
        by_hand.bind({"w": W})
