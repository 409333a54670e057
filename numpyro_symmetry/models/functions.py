"""A function's outputs, as a function of the arrays in one of its arguments and of data: all other arguments.

It has the face of a `LogJoint`, in which outputs take the place of scored sites: log probabilities have to keep their
sum, outputs every entry. Knows pytrees; no symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.primitives import Messenger

from numpyro_symmetry.models.compat import consts_of
from numpyro_symmetry.models.data import is_array, is_key
from numpyro_symmetry.models.log_joint import Data, Sites, Way
from numpyro_symmetry.models.programs import FloatPrecision, Program, program_hash, session_precision, traced
from numpyro_symmetry.symmetry import SymmetryError
from numpyro_symmetry.symmetry.pytrees import arrays_by_path, name_of, replaced, ties_of

# how far from its own value a parameter is tried, in units of the root mean square of its array, or of one that is zero
_SPREAD, _SPREAD_OF_ZERO = 0.5, 0.15


@dataclass(frozen=True, eq=False)
class Outputs:
    """A function, its arguments, and which arrays among these may be moved.

    Attributes
    ----------
    function, args, kwargs
        The function as it is called; random keys by their bits.
    names
        Position among the leaves of the arguments -> site; two positions of one that is tied.
    sites
        Shapes of the arrays, their own values as settings, and names of the outputs.
    """

    function: Callable
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: dict[int, str]
    sites: Sites

    def data(self, way: Way, precision: FloatPrecision) -> Data:
        """The arrays in other arguments that are arguments of the program too."""
        leaves = jax.tree.leaves((self.args, self.kwargs))
        return Data({k: leaves[k] for k in way.positions}, {}, {})

    def log_probs(self, values: Mapping[str, Any], data: Data) -> dict[str, Array]:
        """Every output as real numbers."""
        leaves, structure = jax.tree.flatten((self.args, self.kwargs))
        given = data.arguments | {k: values[name] for k, name in self.names.items()}
        args, kwargs = jax.tree.unflatten(structure, [given.get(k, leaf) for k, leaf in enumerate(leaves)])
        with _WithoutSites():
            return outputs_of(self.function(*args, **kwargs))

    def program(self, data: Data) -> Program:
        """The function, traced for its own arrays and some data.

        Raises
        ------
        SymmetryError
            If it is another program when it is traced again.
        """
        once, again = (
            traced(self.log_probs, dict(self.sites.settings), data, precision=session_precision()) for _ in range(2)
        )
        if not _are_same(once, again):
            raise SymmetryError(
                "The function is not deterministic: called twice with the same arguments it computes two things, such "
                "as with numbers of np.random. Give it a random key as an argument instead."
            )
        return once

    def compiled_place(self, noise: Mapping[str, Any], own: Data, precision: FloatPrecision) -> tuple[Callable, Any]:
        """A function of noise and data that returns values about the parameters' own, and an example of these.

        In NumPy, which has done a line of arithmetic for each array before XLA has compiled the first.
        """

        def place(noise: Mapping[str, np.ndarray], data: Data) -> dict[str, np.ndarray]:
            positive = self.sites.constrained
            return {
                n: _about(np.asarray(x), noise[n], is_positive=n in positive) for n, x in self.sites.settings.items()
            }

        return place, place({name: np.zeros(x.shape, x.dtype) for name, x in noise.items()}, own)

    def compiled_inside(self, values: Any, own: Data, precision: FloatPrecision, count: int) -> Callable:
        """A function of many values: whether each array that is to stay positive is nowhere negative."""
        return lambda values, data: {
            name: (values[name] >= 0).reshape(len(values[name]), -1).all(1) for name in self.sites.constrained
        }


def _about(own: np.ndarray, noise: np.ndarray, *, is_positive: bool) -> np.ndarray:
    """A value about that of a parameter; whole numbers stay what they are."""
    if not jnp.issubdtype(own.dtype, jnp.inexact):
        return own
    z = noise.reshape(own.shape)
    own = own.astype(np.result_type(z, own) if np.iscomplexobj(own) else z.dtype)
    # a value that overflows is infinite, as for JAX, and its point is not used
    with np.errstate(all="ignore"):
        if is_positive:
            # about one where it is zero
            return np.where(own > 0, own, 1.0) * np.exp(_SPREAD * z)
        size = np.sqrt(np.mean(np.abs(own) ** 2)) if own.size else 0.0
        return own + (_SPREAD * size if size > 0 else _SPREAD_OF_ZERO) * z


class _WithoutSites(Messenger):
    """Says of a NumPyro model that is taken for a function that it is one."""

    def process_message(self, msg: Any) -> None:
        """Refuse what would be drawn, and nobody gives a key."""
        if msg["type"] == "sample" and msg["value"] is None and msg["kwargs"].get("rng_key") is None:
            raise SymmetryError(
                f"The function draws site {msg['name']!r}: it is a NumPyro model, and has no outputs that could stay "
                "as they are. Leave argnum out to find the symmetry of its log joint."
            )


def outputs_of_function(
    function: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], argnum: int, *, zeros_may_fall: bool = True
) -> Outputs:
    """A function's outputs, with the arrays of one argument that may be moved.

    Arrays without a negative entry are to stay so; arrays of zeros, which do not show it, unless ``zeros_may_fall``.

    Raises
    ------
    SymmetryError
        If the argument holds no arrays, or NaN; if arguments are shapes.
    """
    if described := [leaf for leaf in jax.tree.leaves((args, kwargs)) if isinstance(leaf, jax.ShapeDtypeStruct)]:
        raise SymmetryError(
            f"The function's arguments hold shapes in place of arrays, such as {described[0]}; expected values, on "
            "which it can be tried. Draw some (module.init(rng_key, x)), or use those of a checkpoint."
        )
    ties = ties_of(args[argnum])
    own = {name: np.asarray(x) for name, x in arrays_by_path(args[argnum]).items() if name not in ties}
    if not own:
        raise SymmetryError(
            f"Argument {argnum} of the function, a {type(args[argnum]).__name__}, holds no arrays; expected its "
            "parameters. Say by argnum which argument holds them."
        )
    if no_numbers := {name: str(x.dtype) for name, x in own.items() if x.dtype.kind in "OSUMm"}:
        raise SymmetryError(f"Argument {argnum} of the function holds no numbers at {no_numbers}; expected arrays.")
    real = {name: x for name, x in own.items() if jnp.issubdtype(x.dtype, jnp.inexact)}
    if broken := [name for name, x in real.items() if not np.isfinite(x).all()]:
        raise SymmetryError(f"Arrays {broken} of argument {argnum} hold NaN or infinities; expected finite parameters.")
    positive = frozenset(
        n for n, x in real.items() if not np.iscomplexobj(x) and (x >= 0).all() and (x.any() or not zeros_may_fall)
    )
    paths = [name_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(args[argnum])]
    first = len(jax.tree.leaves(args[:argnum]))
    names = {k: ties.get(name, name) for k, name in enumerate(paths, first) if ties.get(name, name) in own}
    shapes = {name: tuple(x.shape) for name, x in own.items()}
    sites = Sites(shapes, frozenset(), positive, frozenset(), frozenset(), (), 0, dict(own), (), {})
    return Outputs(*_with_open_keys(function, args, kwargs), names, sites)


def _with_open_keys(
    function: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable, tuple, dict[str, Any]]:
    """A function that takes the bits of random keys, which are data as others, in place of the keys."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    if not (kinds := {k: jax.random.key_impl(leaf) for k, leaf in enumerate(leaves) if is_key(leaf)}):
        return function, args, kwargs

    def taking_bits(*args: Any, **kwargs: Any) -> Any:
        given = jax.tree.leaves((args, kwargs))
        for k, kind in kinds.items():
            given[k] = jax.random.wrap_key_data(given[k], impl=kind)
        args, kwargs = jax.tree.unflatten(structure, given)
        return function(*args, **kwargs)

    bits = [np.asarray(jax.random.key_data(leaf)) if k in kinds else leaf for k, leaf in enumerate(leaves)]
    return taking_bits, *jax.tree.unflatten(structure, bits)


def _are_same(once: Program, again: Program) -> bool:
    first, second = (consts_of(program.closed) for program in (once, again))
    return (
        program_hash(once) == program_hash(again)
        and len(first) == len(second)
        and all(
            not is_array(x) or np.array_equal(x, y, equal_nan=jnp.issubdtype(x.dtype, jnp.inexact))
            for x, y in zip(first, second, strict=True)
        )
    )


def outputs_of(result: Any) -> dict[str, Array]:
    """Every array of a result by its path, as real numbers; random keys by their bits.

    Raises
    ------
    SymmetryError
        If there are none, or a leaf of the result is no number.
    """

    def real(leaf: Any) -> Array:
        value = jnp.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        if jnp.iscomplexobj(value):
            return jnp.stack([value.real, value.imag])
        return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)

    leaves = jax.tree_util.tree_leaves_with_path(result)
    for _, leaf in leaves:
        if not hasattr(leaf, "dtype") and not isinstance(leaf, int | float | complex):
            raise SymmetryError(
                f"The function returns a {type(leaf).__name__}; expected arrays. Return those alone that are to stay "
                "as they are."
            )
    if not leaves:
        raise SymmetryError("The function returns no arrays, so that nothing changes them; expected its outputs.")
    return {f"output {name_of(path)}": real(leaf) for path, leaf in leaves}


def model_of_log_density(function: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], argnum: int) -> Callable:
    """A NumPyro model whose log joint is a log density, of the position that is one of its arguments.

    A site for each array of the position, named by its path, whose own density is one everywhere. The model is called
    as the function is; of the position that it is given structure and shapes count, and no numbers.

    Raises
    ------
    SymmetryError
        If the position holds anything but arrays of real numbers, or the function returns anything but one real number.
    """
    leaves = jax.tree_util.tree_leaves_with_path(args[argnum])
    shapes = {name_of(path): np.shape(leaf) for path, leaf in leaves}
    others = [name_of(p) for p, x in leaves if not (is_array(x) and jnp.issubdtype(x.dtype, jnp.floating))]
    if others or not shapes:
        raise SymmetryError(
            f"Argument {argnum} of the log density must be one position, a pytree of arrays of real numbers, over all "
            f"of which it is integrated; {f'{others} are none' if others else 'it holds none'}. Pass what stays as it "
            "is as another argument, or let the function hold it."
        )

    def model(*args: Any, **kwargs: Any) -> None:
        drawn = {s: numpyro.sample(s, dist.ImproperUniform(dist.constraints.real, (), n)) for s, n in shapes.items()}
        position = replaced(args[argnum], drawn)
        numpyro.factor("log_density", function(*args[:argnum], position, *args[argnum + 1 :], **kwargs))

    with _WithoutSites():
        density = jax.eval_shape(lambda: function(*args, **kwargs))
    shape, dtype = getattr(density, "shape", None), getattr(density, "dtype", bool)
    if shape != () or not jnp.issubdtype(dtype, jnp.floating):
        came = f"a {type(density).__name__}" if shape is None else f"an array {dtype}{shape}"
        raise SymmetryError(f"A log density returns one real number, no axes; got {came}. Sum it, or return it alone.")
    return model
