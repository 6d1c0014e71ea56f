"""Measures only: do the assumptions hold, are features memorised, do minority classes vary where others do not?

``sources`` measures what de-mixing found, ``features`` what went into it.
"""

from ecrt.diagnostics.features import (
    Memorisation,
    MinorityGap,
    UniqueFeature,
    feature_memorisation,
    minority_gap,
    unique_feature,
)
from ecrt.diagnostics.sources import (
    COARSE,
    ClassDependence,
    ClassDiagnosis,
    ClassGrid,
    Dependence,
    Gaussianity,
    SourceDiagnostics,
    SourceRows,
    class_dependence,
    class_grids,
    diagnose_sources,
    source_gaussianity,
    source_stability,
)

__all__ = [
    "COARSE",
    "ClassDependence",
    "ClassDiagnosis",
    "ClassGrid",
    "Dependence",
    "Gaussianity",
    "Memorisation",
    "MinorityGap",
    "SourceDiagnostics",
    "SourceRows",
    "UniqueFeature",
    "class_dependence",
    "class_grids",
    "diagnose_sources",
    "feature_memorisation",
    "minority_gap",
    "source_gaussianity",
    "source_stability",
    "unique_feature",
]
