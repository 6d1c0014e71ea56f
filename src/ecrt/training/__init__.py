"""Optimisation: the loop, its guards, seeds and progress."""

from ecrt.training.interrupt import stop_on_interrupt, stop_requested, stopped_at
from ecrt.training.loop import (
    History,
    IndexBatches,
    Progress,
    SilentProgress,
    TrainingConfig,
    minimise_convex,
    train,
)
from ecrt.training.progress import BarProgress
from ecrt.training.seeding import seeded, torch_generator

__all__ = [
    "BarProgress",
    "History",
    "IndexBatches",
    "Progress",
    "SilentProgress",
    "TrainingConfig",
    "minimise_convex",
    "seeded",
    "stop_on_interrupt",
    "stop_requested",
    "stopped_at",
    "torch_generator",
    "train",
]
