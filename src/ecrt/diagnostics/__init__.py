"""Measures only: does the assumption hold?"""

from ecrt.diagnostics.sources import ClassDiagnosis, SourceDiagnostics, diagnose_sources, theory_matrix

__all__ = ["ClassDiagnosis", "SourceDiagnostics", "diagnose_sources", "theory_matrix"]
