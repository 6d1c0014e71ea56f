"""Where the results of experiments lie, and which runs they are of."""

from __future__ import annotations

import json
import os
from pathlib import Path

__all__ = ["is_full_run", "journal_of", "results_folder"]


def results_folder() -> Path:
    """Where results lie, whatever the working folder: ``ECRT_RESULTS``, or else ``paper/results``."""
    return Path(os.environ.get("ECRT_RESULTS") or Path(__file__).parent / "results")


def is_full_run(file: Path) -> bool:
    """Whether a file is there that is not, for certain, what a trial run wrote."""
    if not file.exists():
        return False
    try:
        return not str(json.loads(file.read_text(encoding="utf-8"))["command"]).endswith("--smoke")
    except (OSError, ValueError, KeyError, TypeError):
        return True


def journal_of(file: Path, *, smoke: bool) -> Path:
    """The journal of results, another one for a trial run."""
    return file.with_name(file.stem.removesuffix(".smoke") + (".smoke.jsonl" if smoke else ".jsonl"))
