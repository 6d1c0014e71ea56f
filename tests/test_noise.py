"""Nothing that is reported of held-out rows of pure noise beats chance; ``benchmarks/noise.py`` is the large run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from noise import CONFIGURATIONS, advantages

LARGE_RUN = json.loads((Path(__file__).parent.parent / "results" / "noise.json").read_text(encoding="utf-8"))
DRAWS = 3
LEVEL = 0.05


@pytest.mark.parametrize("name", list(CONFIGURATIONS))
def test_noise_is_not_told_from_chance(name):
    known = LARGE_RUN["found"][name]
    # As wide as all figures together ask for, by the spread over the draws of the large run.
    width = norm.isf(LEVEL / LARGE_RUN["figures"]) / np.sqrt(DRAWS)
    found = advantages(name, range(DRAWS))
    assert found.keys() == known.keys()
    for figure, values in found.items():
        assert np.mean(values) < width * known[figure]["spread"], figure


def test_the_large_run_is_of_all_configurations_and_found_none_beyond_chance():
    assert LARGE_RUN["found"].keys() >= CONFIGURATIONS.keys()  # some of its options are gone
    assert len(CONFIGURATIONS) >= 40
    assert LARGE_RUN["beyond chance"] == []
