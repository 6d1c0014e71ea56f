"""Methods on the same splits of one table, tuned in the same way, and tested for more than noise.

``methods`` says what can be compared, and ``splits`` which rows are trained on and tested. ``tuning`` finds the
settings of one method on one split. ``protocol`` runs every method on every split, ``store`` keeps the runs on disk,
and ``results`` holds the figures, the tests and the answer in words.
"""

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
