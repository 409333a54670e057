"""Write `reproduction.md`: every claim of the papers with its verdict, from recorded runs.

python docs/make_reproduction.py     from the repository's root
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.reproduction import evidence_claims  # noqa: E402
from tests.reproduction.claims import CLAIMS, GELBERG, ROSSI, XIAO  # noqa: E402
from tests.reproduction.evidence_claims import METODIEV  # noqa: E402
from tests.reproduction.verdicts import Claim, judge  # noqa: E402

HEAD = """# What holds of the papers

For those who know the papers, and wonder what of them can be relied on. Claims of Gelberg et al. (2024, [arXiv:2408.05496](https://arxiv.org/abs/2408.05496)), Rossi et al. (2023,
[arXiv:2310.10171](https://arxiv.org/abs/2310.10171)), Xiao et al. (2023,
[arXiv:2401.00611](https://arxiv.org/abs/2401.00611)) and Metodiev et al. (2025,
[arXiv:2504.21812](https://arxiv.org/abs/2504.21812)), each with what was run here and what came out. This page is written by
`docs/make_reproduction.py` from the runs recorded in `tests/reproduction/results`, with versions and, but for the oldest (Rossi,
Xiao, UCI), commit and day. Most were made with jaxlib 0.10.2, which computes some large sums wrongly ({doc}`sharp-bits`): wherever
a record keeps both, the bound of a symmetrized fit was compared with the loss that it was trained to, and the one run that was off was made again.
Numbers in the tables are computed from them, and so are verdicts (`claims.py` and `evidence_claims.py` in `tests/reproduction`);
the wording is ours. Runs are the size of a laptop: where a paper's own setting is out of reach or
not given, the settings column says what was taken instead, and a verdict is one on that setting. Numbers after ± are
standard errors over seeds or splits, or Monte Carlo errors where one pair of fits was run: these do not tell how two pairs differ.
The splits of a UCI set share most of their rows, so that errors over them are somewhat too small. UCI bounds were recorded with five
Sinkhorn steps and all features, where the package takes one and as many features as it needs; on yacht at 50 units that is less than a nat.

One rule for every effect: *yes* if it is more than three of its standard errors from zero in every setting of the claim, *in part* if
in some and nowhere the other way, *no* otherwise. Some hundred comparisons stand on this page; at three errors a quarter of one among
them is expected to look clear by chance.

*Tier 1* are identities, which must hold; *tier 2* are effects that we expected to see; *tier 3* was tested without promise.

"""

COMMANDS = {
    GELBERG: "python -m tests.reproduction.gelberg --data PATH` and `python -m tests.reproduction.uci --help",
    ROSSI: "python -m tests.reproduction.identities`, `python -m tests.reproduction.rossi --data PATH` and "
    "`python -m tests.reproduction.cifar --data PATH",
    XIAO: "python -m tests.reproduction.xiao [--data PATH]` and `python -m tests.reproduction.transpositions",
    METODIEV: "python -m tests.reproduction.thames",
}

TAIL = """## Where symmetrizing helps, and by how much

![Gain in evidence of symmetric training against the overlap of copies in the bare fit](images/overlap.png)

Every point is one pair of fits from the same start, bare and trained with the sequential (or exact) bound, scored by the same
bounds. Left, copies are distinct in the bare fit: I is log |G|, a constant, and training gains nothing. To the right units
overlap, and the gain grows to a hundred nats and more. The exceptions are one UCI split, another local optimum ({doc}`when`), and
MNIST: from a large initial standard deviation fits had hardly learned anything after three epochs, and the symmetrized ones were
behind; and at 512 units, where the runs were recorded with a bound that sees 64 of 784 inputs (`max_features=64`, the default then),
these do not tell all units apart at the start, so it spends a part of the first epoch on that. The default now chooses the number
at set-up, by how loose the bound is there: 256 for 512 units and 128 for 128. Those runs were not repeated
(`python -m tests.reproduction.overlap_figure`).

## Where the papers are wrong, or say less than they seem to

- *Gelberg et al., equation 11*: the constant printed is smaller than the one the packing argument gives, and either exceeds 2,
  the trivial bound, at every width in use but for the smallest network (1-50-1). $2\\lVert\\omega\\rVert/\\sqrt{n-1}$ is shorter
  to prove and says something ({doc}`when`).
- *Gelberg et al., page 6*: the estimator's objective prints $+\\mathrm{KL}$ for $-\\mathrm{KL}$.
- *Gelberg et al., Table 1*: the spread given fits that of test sampling for one trained network; over training seeds it is
  larger than every gain in the table. With K uniform permutations the estimator is saturated and has no gradient.
- *Gelberg et al., section 3*: the threshold near 5 σ is one of the start, not of the optimum; the figure's divergence is divided
  by the dimension.
- *Gelberg et al., Tables 2 and 3* cannot be reproduced: noise variance, prior variance, initial scale and the "normalized" ELBO
  are not given, and a gain of 0.024 times 100 data would exceed log 2, the most that two copies can give.
- *Rossi et al., appendix A*: the divergence does depend on the permutation through its trace term, as the exchange above shows.
- *Rossi et al.*: a barrier is a maximum over a path that includes its ends, so it is never negative, and Monte Carlo noise makes it
  positive; the path through *mixtures* of two posteriors can have none.
- *Xiao et al.*: activations are matched uncentred, so dead units tie and inflate the number of transpositions; the interpolation is
  printed as (λ − 1); the poster's total variation lacks ½. All reported ones here have it.
- *CIFAR-100*, on which Rossi et al. report a barrier that alignment does not remove, was not run.
"""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def row(claim: Claim) -> str:
    verdict = judge(claim)
    where = claim.source.split(", ", 1)[1] if ", " in claim.source else claim.source
    return (
        f"| {claim.name} | {cell(claim.statement)} ({where}; tier {claim.tier}) | **{verdict.holds}** | "
        f"{cell(verdict.measured)} | {cell(claim.settings)} |"
    )


def page() -> str:
    """The page's text."""
    parts = [HEAD]
    for paper, command in COMMANDS.items():
        own = [
            c
            for c in CLAIMS + evidence_claims.CLAIMS
            if c.source.startswith(paper) or (paper == GELBERG and c.source == "not in the papers")
        ]
        parts += [
            f"## {paper}\n\n`{command}`\n\n",
            "| | claim | holds | measured | settings |\n|---|---|---|---|---|\n",
        ]
        parts += [row(claim) + "\n" for claim in own] + ["\n"]
    return "".join([*parts, TAIL])


if __name__ == "__main__":
    (Path(__file__).parent / "reproduction.md").write_text(page())
