"""Rare digits: what the class prior does to predictions. Run it with ``python examples/tabular.py``.

scikit-learn's digits, of which 5 to 9 have only 10 training rows each. The same fitted model answers two questions:
which digit is it if all ten are equally likely, and which if they are as frequent as in training?
"""

from __future__ import annotations

import numpy as np
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score

from ecrt import ECRTClassifier
from ecrt.data import imbalanced_digits, step_imbalance

RARE = [5, 6, 7, 8, 9]


def main() -> dict[str, dict[str, dict[str, float]]]:
    """Fit once, predict under two priors, on two test sets; gives back all figures."""
    data = imbalanced_digits(n_minority=10, seed=0, minority=tuple(RARE))
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(data.X_train, data.y_train)
    print(f"Fitted on {len(data.y_train)} rows; called minority: {clf.minority_classes_.tolist()}.")

    # Test rows as the data are (about 90 of each digit), and with as few of the rare digits as in training.
    as_trained = step_imbalance(data.y_test, minority=RARE, n_minority=10, rng=np.random.default_rng(0))
    test_sets = {"equally frequent": np.arange(len(data.y_test)), "as frequent as in training": as_trained}

    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, rows in test_sets.items():
        X, y = data.X_test[rows], data.y_test[rows]
        print(f"\n{len(rows)} test rows, digits {name}")
        print(f"{'class prior':12} {'accuracy':>9} {'balanced accuracy':>18} {'recall of 5 to 9':>17}")
        found[name] = {}
        for prior in ("balanced", "training"):
            predicted = clf.set_params(class_prior=prior).predict(X)  # nothing is fitted again
            figures = {
                "accuracy": accuracy_score(y, predicted),
                "balanced accuracy": balanced_accuracy_score(y, predicted),
                "recall of 5 to 9": recall_score(y, predicted, labels=RARE, average="macro"),
            }
            print(f"{prior:12} {figures['accuracy']:9.3f} {figures['balanced accuracy']:18.3f} ", end="")
            print(f"{figures['recall of 5 to 9']:16.3f}")
            found[name][prior] = figures
    return found


if __name__ == "__main__":
    main()
