"""Runs of the command: a file to a folder with a model, and what that model says of other files.

``config`` holds the settings of a fit and finds the task. ``model_folder`` fits a file, keeps the files of the run
together and applies the model to other files; ``streamed`` does so for rows that are read block by block.
``evaluation`` measures a model on test rows. ``diagnosis`` and ``demo`` serve commands of their name.
"""

from ecrt.runs.config import FitConfig
from ecrt.runs.diagnosis import Diagnosis, diagnose
from ecrt.runs.evaluation import Evaluation, evaluate

__all__ = ["Diagnosis", "Evaluation", "FitConfig", "diagnose", "evaluate"]
