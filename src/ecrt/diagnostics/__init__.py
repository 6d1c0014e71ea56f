"""Measures only: does the assumption hold, are features memorised, what does the minority show of its own?"""

from ecrt.diagnostics.dependence import ClassDependence, Dependence, class_dependence
from ecrt.diagnostics.gaussianity import Gaussianity, SourceShape, source_gaussianity
from ecrt.diagnostics.gridding import ClassGrid, class_grids
from ecrt.diagnostics.memorisation import Memorisation, feature_memorisation
from ecrt.diagnostics.minority_gap import MinorityGap, minority_gap
from ecrt.diagnostics.sources import ClassDiagnosis, SourceDiagnostics, SourceRows, diagnose_sources, theory_matrix
from ecrt.diagnostics.stability import Stability, source_stability
from ecrt.diagnostics.unique_feature import UniqueFeature, unique_feature

__all__ = [
    "ClassDependence",
    "ClassDiagnosis",
    "ClassGrid",
    "Dependence",
    "Gaussianity",
    "Memorisation",
    "MinorityGap",
    "SourceDiagnostics",
    "SourceRows",
    "SourceShape",
    "Stability",
    "UniqueFeature",
    "class_dependence",
    "class_grids",
    "diagnose_sources",
    "feature_memorisation",
    "minority_gap",
    "source_gaussianity",
    "source_stability",
    "theory_matrix",
    "unique_feature",
]
