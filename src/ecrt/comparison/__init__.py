"""Methods on the same splits of one table, tuned in the same way, and tested for more than noise."""

from ecrt.comparison.methods import DEFAULT_METHODS, METHODS, Method, choose_methods
from ecrt.comparison.protocol import TRIALS, compare, dask_cluster
from ecrt.comparison.results import MEASURES, SHOWN, Comparison, Measure, MethodResult
from ecrt.metrics import Estimate, Pair

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
    "dask_cluster",
]
