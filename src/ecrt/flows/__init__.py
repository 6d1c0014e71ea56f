"""Features to sources and back: linear de-mixing, masked autoregressive flow, source priors."""

from ecrt.flows.demixer import (
    ClassPrior,
    Demixer,
    SharedPrior,
    SourcePrior,
    class_moments,
    gaussian_log_density,
    shrunk_moments,
)
from ecrt.flows.linear import (
    ROUNDING,
    LinearDemixing,
    LowRank,
    Rotation,
    between_class_variance,
    fit_linear_demixing,
    within_class_residuals,
    within_label_moments,
)
from ecrt.flows.maf import MaskedFlow

__all__ = [
    "ROUNDING",
    "ClassPrior",
    "Demixer",
    "LinearDemixing",
    "LowRank",
    "MaskedFlow",
    "Rotation",
    "SharedPrior",
    "SourcePrior",
    "between_class_variance",
    "class_moments",
    "fit_linear_demixing",
    "gaussian_log_density",
    "shrunk_moments",
    "within_class_residuals",
    "within_label_moments",
]
