from . import (
    assignment as assignment,
)
from . import (
    containers as containers,
)
from . import (
    diagnostics as diagnostics,
)
from . import (
    discovery as discovery,
)
from . import (
    entropy as entropy,
)
from . import (
    evidence as evidence,
)
from . import (
    guides as guides,
)
from . import (
    matching as matching,
)
from . import (
    models as models,
)
from . import (
    samplers as samplers,
)
from . import (
    symmetry as symmetry,
)
from . import (
    testing as testing,
)
from . import (
    traces as traces,
)
from .containers import (
    to_arviz as to_arviz,
)
from .diagnostics import (
    compare as compare,
)
from .diagnostics import (
    loss_barrier as loss_barrier,
)
from .diagnostics import (
    report as report,
)
from .discovery import (
    check_symmetry as check_symmetry,
)
from .discovery import (
    find_activations as find_activations,
)
from .discovery import (
    find_scaling as find_scaling,
)
from .discovery import (
    find_symmetry as find_symmetry,
)
from .entropy import (
    log_permanent as log_permanent,
)
from .entropy import (
    mutual_information as mutual_information,
)
from .evidence import (
    log_evidence as log_evidence,
)
from .guides import (
    AutoConditional as AutoConditional,
)
from .guides import (
    AutoSymmetrized as AutoSymmetrized,
)
from .guides import (
    AutoUnitNormal as AutoUnitNormal,
)
from .matching import (
    ActivationCost as ActivationCost,
)
from .matching import (
    DiagonalGaussian as DiagonalGaussian,
)
from .matching import (
    FullGaussian as FullGaussian,
)
from .matching import (
    match as match,
)
from .matching import (
    merge as merge,
)
from .matching import (
    refine as refine,
)
from .samplers import (
    run_blackjax as run_blackjax,
)
from .symmetry import (
    Complement as Complement,
)
from .symmetry import (
    Concat as Concat,
)
from .symmetry import (
    Split as Split,
)
from .symmetry import (
    Symmetry as Symmetry,
)
from .symmetry import (
    SymmetryError as SymmetryError,
)
from .symmetry import (
    SymmetryWarning as SymmetryWarning,
)
from .symmetry import (
    Unsigned as Unsigned,
)
from .symmetry import (
    UnsupportedGuideError as UnsupportedGuideError,
)
from .symmetry import (
    Whole as Whole,
)
from .symmetry import (
    compose as compose,
)
from .symmetry import (
    inverse as inverse,
)
from .symmetry import (
    num_transpositions as num_transpositions,
)
from .traces import (
    AllocationCost as AllocationCost,
)
from .traces import (
    EuclideanCost as EuclideanCost,
)
from .traces import (
    GaussianCost as GaussianCost,
)
from .traces import (
    StephensCost as StephensCost,
)
from .traces import (
    rebase as rebase,
)

__version__: str
