"""The page on speed says what the results say."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_page_is_written_from_the_results() -> None:
    page = runpy.run_path(str(ROOT / "benchmarks" / "speed_table.py"), run_name="read")["page"]()
    assert (ROOT / "docs" / "speed.md").read_text(encoding="utf-8") == page, "run: python benchmarks/speed_table.py"
