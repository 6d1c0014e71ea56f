"""Multi-label data with rare labels. Run it with ``python examples/multilabel.py``."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_multilabel_classification

from ecrt import ECRTClassifier
from ecrt.metrics import multilabel_metrics


def main() -> dict[str, dict[str, float]]:
    """Thin out two labels, fit once for each kind of threshold; gives back all figures."""
    X, Y = make_multilabel_classification(4000, n_features=15, n_classes=8, n_labels=2, random_state=0)
    rng = np.random.default_rng(0)
    train = np.arange(2000)
    rare = Y[train][:, :2].any(axis=1)
    train = train[~rare | (rng.random(len(train)) < 0.1)]
    found = {}
    for thresholds in ("half", "validation"):
        clf = ECRTClassifier(
            demixing="linear", head="linear", class_prior="training", thresholds=thresholds, random_state=0
        ).fit(X[train], Y[train])
        figures = multilabel_metrics(clf.decision_function(X[2000:]), Y[2000:] > 0, clf.predict(X[2000:]) > 0)
        found[thresholds] = figures
        print(f"thresholds={thresholds!r}: " + ", ".join(f"{name} {value:.3f}" for name, value in figures.items()))
    print(f"called minority: {clf.minority_classes_.tolist()}, with {clf.class_counts_[:2].tolist()} rows")
    return found


if __name__ == "__main__":
    main()
