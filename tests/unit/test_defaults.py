"""What a user gets who names nothing: a changed default changes numbers without a word, but for this table."""

import importlib
import inspect

import numpyro_symmetry as ns

SUBPACKAGES = (
    "symmetry entropy containers discovery matching guides traces samplers evidence diagnostics testing".split()
)
# numbers, flags and words; every bar is shown
DEFAULTS = {
    "AutoConditional": {"sites": "auto", "num_steps": 3},
    "AutoSymmetrized": {
        "estimator": "auto",
        "num_permutations": 8,
        "max_features": "auto",
        "check": True,
        "signs": True,
        "prefix": "symmetry",
    },
    "AutoSymmetrized.elbo_bounds": {"num_particles": 256, "num_permutations": 16, "chunk_size": "auto"},
    "AutoSymmetrized.of_gaussian": {"unconstrained": False},
    "AutoSymmetrized.sample_posterior": {"symmetrize": False},
    "AutoUnitNormal": {"rank": "auto", "prefix": "auto", "init_scale": 0.1},
    "Complement": {"total": 1.0},
    "DiagonalGaussian.check": {"where": ""},
    "DiagonalGaussian.fit": {"num_leading_dims": 1},
    "Estimator": {
        "needs_key": False,
        "fewest_permutations": 1,
        "proposes": False,
        "sees_features": False,
        "is_additive": True,
    },
    "EuclideanCost": {"transforms": "identity", "standardize": True},
    "Finding": {"is_parameter": False},
    "GaussianCost": {"transforms": "auto"},
    "GivenGaussian": {"unconstrained": False, "prefix": "auto"},
    "Kind": {"is_full": False, "signed": False},
    "LogEvidence": {"num_draws": 0},
    "LogFactor": {"validate_args": False},
    "PlainView": {"with_single": False},
    "PlainView.of": {"with_single": False, "nested": False},
    "PlainView.open": {"common": False},
    "Rebased": {"part": "joint"},
    "Symmetry.bind": {"num_leading_dims": 0},
    "Symmetry.elements": {"max_order": 50000},
    "Symmetry.factor": {"group": "factor", "kind": "signed"},
    "Symmetry.hmm": {"group": "state"},
    "Symmetry.mixture": {"group": "component"},
    "Symmetry.mlp": {"layout": "in_out", "kind": "permutation"},
    "Trace": {"are_members": False},
    "check_symmetry": {"part": "joint", "num_points": 3, "num_elements": 2},
    "compare": {"level": 0.05, "num_exchanges": 999, "num_draws": 1000},
    "dirichlet_mixture": {"num_components": 3, "num_data": 30, "seed": 0},
    "enumerable_mixture": {"num_components": 2, "num_data": 6, "separation": 4.0, "prior_scale": 3.0, "seed": 0},
    "exchangeable_gaussian": {
        "num_units": 4,
        "dim": 2,
        "separation": 1.0,
        "scale": 0.3,
        "seed": 0,
        "log_evidence": 0.0,
    },
    "find_activations": {"argnum": 0},
    "find_scaling": {"argnum": 0},
    "find_symmetry": {"part": "joint", "signs": True},
    "hidden_markov": {"num_states": 3, "num_steps": 20, "seed": 0},
    "information": {"num_permutations": 8, "bound": "lower"},
    "log_evidence": {"signs": True, "method": "auto", "num_permutations": 16},
    "log_proposal_of_identity": {"num_scaling_steps": 1},
    "loss_barrier": {"num_points": 11, "num_draws": 128},
    "match": {"cost": "wasserstein", "method": "auto", "chunk_size": "auto"},
    "merge": {"how": "mean", "cost": "wasserstein", "method": "auto"},
    "modes": {"independent": False},
    "mutual_information": {"num_permutations": 8, "bound": "lower", "chunk_size": "auto"},
    "point_partition": {"distance": "variation_of_information"},
    "prior_conformity": {"level": 0.05, "smallest_effect": 0.0},
    "read": {"lazily": False},
    "rebase": {"reference": "mean", "cost": "auto", "method": "auto", "null": True, "signs": True, "part": "joint"},
    "refine": {"num_steps": 200, "batch_size": 100},
    "run_blackjax": {
        "algorithm": "nuts",
        "num_chains": 4,
        "num_warmup": 1000,
        "num_samples": 1000,
        "thinning": 1,
        "num_integration_steps": 16,
        "target_acceptance_rate": 0.8,
        "dense_mass": False,
        "log_likelihood": True,
    },
    "sample_proposal": {"num_scaling_steps": 1},
    "tiny_network": {"num_data": 10, "activation": "relu", "noise_scale": 0.3, "seed": 0},
    "to_arviz": {"num_draws": 1000, "log_likelihood": True},
    "two_weight_network": {"slope": 0.1, "noise_variance": 10.0, "num_data": 100, "prior_variance": 1.0},
    "varimax": {"normalize": False, "tolerance": 1e-06},
}


def public():
    """Functions, classes and their methods, by name."""
    for owner in (ns, *(importlib.import_module(f"numpyro_symmetry.{name}") for name in SUBPACKAGES)):
        for name, one in ((name, getattr(owner, name)) for name in owner.__all__):
            yield name, one
            if inspect.isclass(one):
                yield from ((f"{name}.{key}", getattr(one, key)) for key in vars(one) if not key.startswith("_"))


def defaults_of(one):
    if not callable(one) or (inspect.isclass(one) and issubclass(one, Exception)):
        return {}
    parameters = inspect.signature(one).parameters.values()
    return {x.name: x.default for x in parameters if type(x.default) in (bool, int, float, str)}


def test_defaults_are_those_of_the_table():
    own = {name: one for name, one in public() if (getattr(one, "__module__", None) or "").startswith(ns.__name__)}
    found = {name: defaults_of(one) for name, one in own.items()}
    assert all(defaults.pop("progress_bar", True) is True for defaults in found.values())
    assert {name: defaults for name, defaults in found.items() if defaults} == DEFAULTS
