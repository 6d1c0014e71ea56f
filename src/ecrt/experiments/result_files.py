"""Where the results of experiments lie, and which runs they are of."""

from __future__ import annotations

import json
import os
from pathlib import Path

__all__ = ["is_full_run", "journal_of", "results_folder"]


def results_folder() -> Path:
    """Where results lie, whatever the working folder: ``ECRT_RESULTS``, or this checkout's, or one in the home."""
    checkout = Path(__file__).parents[3]
    there = checkout / "results" if (checkout / "pyproject.toml").is_file() else Path.home() / "ecrt-results"
    return Path(os.environ.get("ECRT_RESULTS") or there)


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
