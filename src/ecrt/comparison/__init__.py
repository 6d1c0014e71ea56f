"""Methods on the same splits of one table, tuned alike, and tested for more than noise."""

from ecrt.comparison.comparing import compare
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
    "Comparison",
    "Estimate",
    "Measure",
    "Method",
    "MethodResult",
    "Pair",
    "choose_methods",
    "compare",
    "corrected_estimate",
    "holm",
    "size_of",
]
