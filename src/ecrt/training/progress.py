"""A progress bar for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

__all__ = ["BarProgress"]


class BarProgress:
    """One bar for each stage; its steps are a bound: where a stage stops early, so does its bar."""

    def __init__(self) -> None:
        self._bars = RichProgress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"), console=Console(stderr=True),
        )  # fmt: skip
        self._task: TaskID | None = None

    def __enter__(self) -> BarProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def start(self, stage: str, total: int) -> None:
        """Add a bar."""
        self._task = self._bars.add_task(stage, total=total, note="")

    def advance(self, note: str = "") -> None:
        """Move the newest bar by one step."""
        if self._task is not None:
            self._bars.update(self._task, advance=1, note=note)

    def finish(self) -> None:
        """End the newest bar at the step it has reached."""
        if self._task is not None:
            self._bars.update(self._task, total=self._bars.tasks[self._task].completed)
            self._task = None
