"""Tiny-ImageNet: probabilities that can be trusted

Features of photographs from a network that was trained elsewhere, 60 of the 200 classes. Half of them have 150
training images, the other half 20. Test classes are equally frequent, so the balanced prior, the default, is the
right one.

A probability should mean what it says: a curve on the diagonal tells that of the images to which a classifier gives a
probability of 0.7, it is right on 70 %. Rare and frequent classes are drawn apart. Oversampling repeats rare rows, so
that how sure it is of them depends on the penalty `C`, and rows that were repeated cannot choose it. `ECRTClassifier`
chooses its penalties on held-out rows. [The page on rivals](../rivals.md) has tuned ones.

Needs `tiny_imagenet/effnet_lite0_pca512.npz` in the folder named by `ECRT_DATA`: int8 features `x` with a `scale` for
each column, `y`, and the flag `test`. `python -m paper tinyimagenet` measures all classes.
"""

import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from imblearn.over_sampling import RandomOverSampler
from imblearn.pipeline import make_pipeline
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from ecrt import ECRTClassifier

path = Path(os.environ.get("ECRT_DATA", "")) / "tiny_imagenet" / "effnet_lite0_pca512.npz"
if not path.is_file():
    sys.exit(f"There is no {path}: set ECRT_DATA to the folder that holds it.")
with np.load(path) as data:
    wanted = np.isin(data["y"], [*range(30), *range(100, 130)])
    X, y, test = (data["x"][wanted] * data["scale"]), data["y"][wanted], data["test"][wanted] > 0
train = np.concatenate([np.flatnonzero((y == c) & ~test)[: 150 if c < 100 else 20] for c in np.unique(y)])
rare = y[test] >= 100

repeat = RandomOverSampler(random_state=0)
figure, axes = plt.subplots(1, 2, figsize=(8, 4), sharey=True, layout="constrained")
for name, clf in {
    "oversampling, C=1": make_pipeline(repeat, StandardScaler(), LogisticRegression(max_iter=300)),
    "oversampling, C=0.01": make_pipeline(repeat, StandardScaler(), LogisticRegression(C=0.01)),
    "ECRT, default": ECRTClassifier(random_state=0),
}.items():
    proba = clf.fit(X[train], y[train]).predict_proba(X[test])
    top, right = proba.max(axis=1), clf.classes_[proba.argmax(axis=1)] == y[test]
    print(
        f"{name:20} accuracy {right.mean():.3f}, of rare classes {right[rare].mean():.3f}, "
        f"log-loss {log_loss(y[test], proba):.3f}"
    )
    for ax, rows, title in zip(axes, (~rare, rare), ("150 training images", "20 training images"), strict=True):
        tenths = np.digitize(top[rows], np.linspace(0, 1, 9)[1:-1])
        points = [
            (top[rows][tenths == t].mean(), right[rows][tenths == t].mean())
            for t in range(8)
            if (tenths == t).sum() >= 20
        ]
        ax.plot(*zip(*points, strict=True), "o-", label=name)
        ax.set(title=f"classes with {title}", xlabel="probability given to the answer")
for ax in axes:
    ax.plot([0, 1], [0, 1], ":", color="0.5")
axes[0].set_ylabel("share of right answers")
axes[0].legend()
figure.savefig("tiny_imagenet.png", dpi=80, metadata={"Description": "Reliability for frequent and for rare classes"})
