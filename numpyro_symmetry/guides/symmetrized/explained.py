"""What a symmetrized guide symmetrizes, in words. Knows a guide and its layout."""

from __future__ import annotations

from typing import Any


def explain(guide: Any) -> str:
    """What is symmetrized, which sites tell units apart, and which merely follow, in a few lines.

    Returns
    -------
    str
        What is said of the base guide too, if it explains itself.

    Examples
    --------
    >>> import jax
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> from numpyro_symmetry import AutoSymmetrized, testing
    >>> small = testing.enumerable_mixture()
    >>> guide = AutoSymmetrized(AutoNormal(small.model), small.symmetry).setup(jax.random.key(0), *small.model_args)
    >>> print(guide.explain().splitlines()[1])
    Units are told apart by loc.
    """
    if guide.layout is None:
        return "Not set up yet: call guide.setup(rng_key, *model_args), or SVI.init, once."
    if not guide.layout.symmetry.groups:
        return f"{guide!r}\nNothing to symmetrize: the guide is its base guide."
    layout = guide.layout
    lines = [repr(guide), f"Units are told apart by {', '.join(layout.sites)}."]
    if still := [name for name in guide.symmetry.groups if name not in layout.symmetry.groups]:
        lines.append(
            f"Of the symmetry, log|G| = {guide.symmetry.log_order():.1f} in all, {still} are held still: of heads and "
            "the units in them, which cannot both be averaged over here, those of more elements are."
        )
    if layout.following:
        follow, are = ("follow", "are") if len(layout.following) > 1 else ("follows", "is")
        lines.append(
            f"{', '.join(layout.following)} {follow} these (equivariant, seen in double precision) and {are} "
            f"left out of the table: I(g; θ) = I(g; {', '.join(layout.sites)})."
        )
    if layout.whitened:
        by_group = [f"{group} by {', '.join(layout.sites_of(group))}" for group in layout.symmetry.groups]
        lines.append(
            f"Group by group: {'; '.join(by_group)}. {', '.join(layout.whitened)} follow the other groups (seen in "
            "double precision), so that the informations of the groups' tables add."
        )
    inner = getattr(guide.base, "explain", None)
    return "\n".join(lines + ([inner()] if inner is not None else []))
