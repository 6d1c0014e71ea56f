"""Runs of the command: a file to a folder with a model, and what that model says of other files.

``config`` holds the settings of a fit and finds the task. ``model_folder`` fits a file, keeps the files of the run
together and applies the model to other files. ``evaluation`` measures a model on test rows. ``diagnosis`` and ``demo``
serve commands of their name.
"""

from ecrt.runs.config import FitConfig, read_classes, read_config, read_costs, read_prior
from ecrt.runs.diagnosis import Diagnosis, diagnose
from ecrt.runs.evaluation import Evaluation, Measured, evaluate
from ecrt.runs.model_folder import (
    FittedRun,
    card_of,
    check_predictions,
    fit_file,
    open_output,
    open_report,
    open_run,
    publish_run,
    write_predictions,
)

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
