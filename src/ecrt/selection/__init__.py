"""The pseudo-minority test: options are chosen on majority classes that are cut down to minority size."""

from ecrt.selection.problems import Problem
from ecrt.selection.pseudo_minority import PLAIN, SELECTION, PseudoMinority, Selection

__all__ = ["PLAIN", "SELECTION", "Problem", "PseudoMinority", "Selection"]
