"""Optimisation: the loop, its guards, seeds and progress."""

from ecrt.nn.randomness import seeded
from ecrt.training.interrupt import interrupted_at_once, stop_on_interrupt, stop_requested, stopped_at
from ecrt.training.loop import (
    BarProgress,
    History,
    IndexBatches,
    Progress,
    TrainingConfig,
    minimise_convex,
    torch_generator,
    train,
)
from ecrt.training.threads import all_threads, one_thread

__all__ = [
    "BarProgress",
    "History",
    "IndexBatches",
    "Progress",
    "TrainingConfig",
    "all_threads",
    "interrupted_at_once",
    "minimise_convex",
    "one_thread",
    "seeded",
    "stop_on_interrupt",
    "stop_requested",
    "stopped_at",
    "torch_generator",
    "train",
]
