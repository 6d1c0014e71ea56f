"""Plankton: a long tail of species

Images of plankton (the National Data Science Bowl of 2015), 121 species of 6 to 1,584 images, as features of a
network that was trained on other images. A third of the species is taken here, and at most 150 images of each, so
that a fit takes seconds. Half of the images of every species are kept for the test.

This is what the method is made for: many classes, and rare ones that vary as frequent ones do. The picture shows
recall against the number of training images; a line joins the two methods for one species. Test images of the rarest
species are few, so single points mean little, and one split is not an interval.

Needs `plankton/effnet_lite0_pca512.npz` in the folder named by `ECRT_DATA`: int8 features `x` with a `scale` for each
column, and `y`. `python -m paper plankton` measures all species, with intervals.
"""

import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import balanced_accuracy_score, recall_score

from ecrt import BaselineClassifier, ECRTClassifier

path = Path(os.environ.get("ECRT_DATA", "")) / "plankton" / "effnet_lite0_pca512.npz"
if not path.is_file():
    sys.exit(f"There is no {path}: set ECRT_DATA to the folder that holds it.")
with np.load(path) as data:
    X, y = data["x"] * data["scale"], data["y"]

rng = np.random.default_rng(0)
by_size = np.argsort(np.bincount(y))
train, test = [], []
for species in by_size[::3]:
    rows = rng.permutation(np.flatnonzero(y == species))[:300]
    train.extend(rows[: len(rows) // 2])
    test.extend(rows[len(rows) // 2 :])
images = np.bincount(y[train])[by_size[::3]]
print(f"{len(train)} images of {len(images)} species, of {images.min()} to {images.max()} each")

few, recalls = images < 20, {}
for name, clf in {
    "logit adjustment": BaselineClassifier(method="logit-adjusted", random_state=0),
    "ECRT, default": ECRTClassifier(random_state=0),
}.items():
    found = clf.fit(X[train], y[train]).predict(X[test])
    recalls[name] = recall_score(y[test], found, labels=by_size[::3], average=None)
    print(
        f"{name:17} balanced accuracy {balanced_accuracy_score(y[test], found):.3f}, "
        f"recall of species under 20 images {recalls[name][few].mean():.3f}"
    )
print(clf.verdict_)

figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
axes.vlines(images, *recalls.values(), color="0.7", zorder=0)
for name, marker in zip(recalls, "o^", strict=True):
    axes.scatter(images, recalls[name], marker=marker, s=25, label=name)
axes.set(xlabel="training images of the species", ylabel="recall", xscale="log")
axes.legend(loc="lower right")
figure.savefig("plankton.png", dpi=90, metadata={"Description": "Recall of each species against its number of images"})
