"""Methods on the same splits of one table, tuned in the same way, and tested for more than noise.

``methods`` says what can be compared, and ``splits`` which rows are trained on and tested. ``protocol`` tunes and fits
every method on every split and keeps the runs on disk. ``results`` tests the differences.
"""

from ecrt.comparison.methods import DEFAULT_METHODS, METHODS, Method, TableReader, choose_methods
from ecrt.comparison.protocol import compare
from ecrt.comparison.results import MEASURES, SHOWN, Comparison, MethodResult
from ecrt.workers import dask_cluster

__all__ = [
    "DEFAULT_METHODS",
    "MEASURES",
    "METHODS",
    "SHOWN",
    "Comparison",
    "Method",
    "MethodResult",
    "TableReader",
    "choose_methods",
    "compare",
    "dask_cluster",
]
