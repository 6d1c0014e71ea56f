"""Runs of the command: a file to a folder with a model, and what that model says of other files.

``config`` holds the settings of a fit, and ``targets`` finds the task. ``fitting`` fits a file and ``predicting``
applies the model to another. ``evaluation`` measures a model on test rows; ``records`` are the results and their files.
``folder`` keeps the files of a run together. ``comparing``, ``diagnosis`` and ``demo`` serve the other commands.
"""

from ecrt.runs.comparing import compare_file
from ecrt.runs.config import FitConfig, read_config, read_costs, read_prior
from ecrt.runs.diagnosis import Diagnosis, diagnose, diagnose_file
from ecrt.runs.evaluation import evaluate
from ecrt.runs.fitting import fit_file
from ecrt.runs.folder import open_output, open_report, publish_run
from ecrt.runs.predicting import (
    FittedRun,
    card_of,
    check_predictions,
    evaluate_file,
    open_run,
    predict_file,
    write_predictions,
)
from ecrt.runs.records import Evaluation, Measured

__all__ = [
    "Diagnosis",
    "Evaluation",
    "FitConfig",
    "FittedRun",
    "Measured",
    "card_of",
    "check_predictions",
    "compare_file",
    "diagnose",
    "diagnose_file",
    "evaluate",
    "evaluate_file",
    "fit_file",
    "open_output",
    "open_report",
    "open_run",
    "predict_file",
    "publish_run",
    "read_config",
    "read_costs",
    "read_prior",
    "write_predictions",
]
