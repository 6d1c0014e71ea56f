"""Should transfer be used here? Run it with ``python examples/diagnose_table.py``.

Two made-up tables with rare classes that only one feature separates. In the first, the frequent classes hardly vary
along it, so nothing that is learned from them says that it matters. In the second, they share it. All else is the same.
"""

from __future__ import annotations

import numpy as np

import ecrt
from ecrt.data import rare_feature_data
from ecrt.report import diagnosis_table, recommendation_text


def main() -> dict[str, bool]:
    """Diagnose both; gives back on which transfer is recommended."""
    # Options that are set are not left to choose. Here they also make every fit a matter of milliseconds.
    clf = ecrt.ECRTClassifier(
        demixing=ecrt.Linear(n_sources=8, rotation="discriminant"),
        head="gaussian",
        augmentation=ecrt.Parametric(pseudo_samples=9.0),
    )
    advised = {}
    for name, unique in (("a feature unique to the rare classes", True), ("a feature that all classes share", False)):
        data = rare_feature_data(unique=unique, rng=np.random.default_rng(0))
        found = ecrt.diagnose(data.z, data.y, estimator=clf, trials=18, refits=2, random_state=0)
        print(f"Table with {name}: {len(data.y)} rows, {len(found.labels)} classes")
        for question, answer in diagnosis_table(found).rows:
            print(f"  {question.text:60} {answer.text}")
        print(f"  {recommendation_text(found).partition('.')[0]}.\n")
        advised[name] = found.recommendation == "use"
    return advised


if __name__ == "__main__":
    main()
