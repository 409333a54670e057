"""Print the gallery of `finding.md`: models of `tests/gallery`, and the groups that `find_symmetry` finds in them.

python docs/make_gallery.py     from the repository's root, with flax and funsor installed
"""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from numpyro_symmetry import SymmetryWarning, find_symmetry  # noqa: E402
from tests.gallery import CASES, Case  # noqa: E402

SHOWN = {
    "Networks": """
mlp-1-layer mlp-3-layers mlp-out-in-kernels mlp-flat-weights mlp-two-prior-scales mlp-masked horseshoe-weights
residual-mlp dense-net-concat swiglu-fused batch-norm group-norm low-rank-kernel mixture-density-network
ensemble-vmap mixture-of-experts maxout residual-scan-stacked rnn-scan lstm-fused-gates transformer-block
attention-grouped-queries linen-mlp-random convnet-flatten-dense resnet-20 nnx-convnet flax-attention
output-weights-integrated-out units-with-neighbours
""",
    "Mixtures and hidden Markov models": """
gmm gmm-full-covariance gmm-enumerated gmm-asymmetric-dirichlet gmm-ordered-locs mixture-fixed-weights
mixture-general-shared-array mixture-with-outliers mixture-per-group mixture-of-mixtures dawid-skene dp-stick-breaking
hmm-forward-scan hmm-sticky-prior hmm-enumerated-fixed-start
""",
    "Factor models and others": """
factor-analysis probabilistic-pca matrix-factorisation tucker-decomposition ica-unmixing topics block-model-soft
eight-schools
""",
}


def row(case: Case) -> str:
    """What the model is, the group that is found, and what breaks the rest."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SymmetryWarning)
        found = find_symmetry(case.model, case.args)
    group = " × ".join(map(str, found.groups.values())) or "none"
    what = " ".join((case.model.__doc__ or "").split()).rstrip(".")
    return f"| {what} | {group} | {case.why} |".replace("|  |", "| |")


def main() -> None:
    cases = {case.name: case for case in CASES}
    for title, names in SHOWN.items():
        print(f"| {title} | group found | what breaks the rest |\n|---|---|---|")
        for name in names.split():
            print(row(cases[name]), flush=True)
        print()


if __name__ == "__main__":
    main()
