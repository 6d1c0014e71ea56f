"""A file to which finished work is added line by line, so that a stopped run continues where it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from ecrt.disk import hold
from ecrt.errors import InputError, warn_user


class Journal:
    """Rows on disk, one JSON object on each line, with one writer at a time.

    Broken lines are named in a warning and left out, so that their work is done again.

    Attributes
    ----------
    rows : those found.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: list[dict[str, Any]] = []

    def __enter__(self) -> Journal:
        try:
            while True:
                self._lines = self.file.open("a+b", buffering=0)
                if not hold(self._lines.fileno(), wait=False):
                    self._lines.close()
                    raise InputError(f"Another command is writing to {self.file}. Wait until it has ended.")
                if os.fstat(self._lines.fileno()).st_nlink:
                    break
                self._lines.close()  # its writer ended just now, and has removed it
        except OSError as error:
            raise InputError(f"Cannot write {self.file}: {error.strerror or error}.") from error
        self._read()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if os.fstat(self._lines.fileno()).st_size == 0:
            self.remove()
        self._lines.close()

    def add(self, row: dict[str, Any]) -> None:
        """Write a row to the disk, whole; a row that cannot be written leaves those before it as they are."""
        length = os.fstat(self._lines.fileno()).st_size
        try:
            self._lines.write(json.dumps(row).encode("ascii") + b"\n")
            os.fsync(self._lines.fileno())
        except OSError as error:
            os.ftruncate(self._lines.fileno(), length)
            raise InputError(
                f"Cannot write {self.file}: {error.strerror or error}. What is in it stays: the same command goes on."
            ) from error

    def remove(self) -> None:
        """Remove the journal when the work is done."""
        self.file.unlink(missing_ok=True)

    def _read(self) -> None:
        self._lines.seek(0)
        content = self._lines.read()
        torn = []
        for number, line in enumerate(content.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if isinstance(row, dict):
                self.rows.append(row)
            else:
                torn.append(number)
        if torn:
            shown = ", ".join(map(str, torn[:10]))
            warn_user(f"{self.file}: line {shown} cannot be read; that work is done again.")
        if content and not content.endswith(b"\n"):  # or the next row would be torn too
            self._lines.write(b"\n")
