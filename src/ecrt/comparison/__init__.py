"""Methods on the same splits of one table, tuned alike, and tested for more than noise."""

from ecrt.comparison.cluster import dask_cluster
from ecrt.comparison.comparing import TRIALS, compare
from ecrt.comparison.methods import DEFAULT_METHODS, METHODS, Method, choose_methods
from ecrt.comparison.results import Comparison, MethodResult
from ecrt.comparison.scoring import MEASURES, SHOWN, Measure
from ecrt.comparison.statistics import Estimate, Pair, corrected_estimate, holm
from ecrt.comparison.verdict import size_of

__all__ = [
    "DEFAULT_METHODS",
    "MEASURES",
    "METHODS",
    "SHOWN",
    "TRIALS",
    "Comparison",
    "Estimate",
    "Measure",
    "Method",
    "MethodResult",
    "Pair",
    "choose_methods",
    "compare",
    "corrected_estimate",
    "dask_cluster",
    "holm",
    "size_of",
]
