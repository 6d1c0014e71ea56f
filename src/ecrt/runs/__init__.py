"""Runs of the command: a file to a folder with a model, and what that model says of other files.

``config`` holds the settings of a fit, and ``targets`` finds the task. ``fitting`` fits a file and ``predicting``
applies the model to another. ``evaluation`` measures a model on test rows; ``records`` are the results and their files.
``folder`` keeps the files of a run together. ``diagnosis`` and ``demo`` serve commands of their name.
"""

from ecrt.runs.config import FitConfig, read_config, read_costs, read_prior
from ecrt.runs.diagnosis import Diagnosis, diagnose
from ecrt.runs.evaluation import evaluate
from ecrt.runs.fitting import fit_file
from ecrt.runs.folder import open_output, open_report, publish_run
from ecrt.runs.predicting import FittedRun, card_of, check_predictions, open_run, write_predictions
from ecrt.runs.records import Evaluation, Measured
from ecrt.runs.targets import read_classes

__all__ = [
    "Diagnosis",
    "Evaluation",
    "FitConfig",
    "FittedRun",
    "Measured",
    "card_of",
    "check_predictions",
    "diagnose",
    "evaluate",
    "fit_file",
    "open_output",
    "open_report",
    "open_run",
    "publish_run",
    "read_classes",
    "read_config",
    "read_costs",
    "read_prior",
    "write_predictions",
]
