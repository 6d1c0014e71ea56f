"""Runs of the command: a file to a folder with a model, and what that model says of other files."""

from ecrt.runs.comparing import compare_file
from ecrt.runs.config import FitConfig, read_config, read_costs, read_prior
from ecrt.runs.diagnosing import diagnose, diagnose_file
from ecrt.runs.diagnosis import Diagnosis
from ecrt.runs.evaluation import evaluate
from ecrt.runs.fitting import check_output, fit_file
from ecrt.runs.predicting import (
    FittedRun,
    card_of,
    check_predictions,
    evaluate_file,
    open_run,
    predict_file,
    write_predictions,
)
from ecrt.runs.records import Evaluation

__all__ = [
    "Diagnosis",
    "Evaluation",
    "FitConfig",
    "FittedRun",
    "card_of",
    "check_output",
    "check_predictions",
    "compare_file",
    "diagnose",
    "diagnose_file",
    "evaluate",
    "evaluate_file",
    "fit_file",
    "open_run",
    "predict_file",
    "read_config",
    "read_costs",
    "read_prior",
    "write_predictions",
]
