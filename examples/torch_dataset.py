"""Images in a torch Dataset, an encoder of your own, and a model on disk: ``python examples/torch_dataset.py``.

The images are scikit-learn's digits, 8 x 8 pixels, with few of the digits 5 to 9.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import balanced_accuracy_score
from torch import Tensor, nn
from torch.utils.data import Dataset

import ecrt
from ecrt import ECRTClassifier, Encoder
from ecrt.data import imbalanced_digits


class Digits(Dataset[tuple[Tensor, int]]):
    """Any Dataset of (x, y) with a length will do; y is a whole number or a string."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.images = torch.from_numpy(X.reshape(-1, 1, 8, 8) / 8 - 1).float()
        self.labels = y

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.labels[index])


def make_encoder() -> nn.Module:
    """Any module that turns a batch into a matrix, one row of features for each sample."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(128, 24),
    )  # fmt: skip


def main() -> float:
    """Fit, save, load; gives back the balanced accuracy on test rows."""
    data = imbalanced_digits(n_minority=40, seed=0)
    train, test = Digits(data.X_train, data.y_train), Digits(data.X_test, data.y_test)
    torch.manual_seed(0)  # the encoder's first weights are yours, so their seed is too
    encoder = Encoder(make_encoder(), epochs=40, learn_from="all")
    clf = ECRTClassifier(encoder=encoder, demixing="linear", head=["linear", "gaussian"], random_state=0)
    clf.fit(train)
    accuracy = balanced_accuracy_score(data.y_test, clf.predict(test))
    print(f"{len(train)} images to {clf.transform(test).shape[1]} sources; balanced accuracy {accuracy:.3f}.")

    with tempfile.TemporaryDirectory() as folder:
        clf.save(folder)
        print("Saved:", ", ".join(sorted(path.name for path in Path(folder).iterdir())))
        # Files hold the weights of your encoder, not its code: pass a module of the same build.
        again = ecrt.load(folder, encoder=make_encoder())
    same = np.array_equal(again.predict_proba(test), clf.predict_proba(test))
    print(f"The loaded model gives the same probabilities: {same}.")
    return float(accuracy)


if __name__ == "__main__":
    main()
