"""One thread, the same examples of property tests on every machine, and figures only where tests look at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

settings.register_profile("ecrt", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("ecrt")

LOOK_AT_FIGURES = {
    "test_compare_page", "test_demo", "test_diagnose", "test_hostile", "test_model_page", "test_source_pictures",
    "test_task_pages",
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def figures_without_rendering(request: pytest.FixtureRequest) -> Iterator[None]:
    """Figures of pages are made, but not rendered, which takes most of the time of a page."""
    if request.module.__name__ in LOOK_AT_FIGURES:
        yield
        return
    from matplotlib.figure import Figure

    render = Figure.savefig

    def save(figure: Any, file: Any, **options: Any) -> None:
        if options.get("format") != "svg":
            return render(figure, file, **options)
        return file.write('<svg viewBox="0 0 1 1"></svg>')

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield
