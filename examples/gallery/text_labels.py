"""Text with several labels: topics of articles

Abstracts of arXiv as features of a sentence encoder. An article has one topic or several. Of 147 the 40 most frequent
are taken, and 6,000 articles, so that the rarest topics have few. `y` is an indicator matrix, here a data frame whose
columns are the names of the topics.

With `class_prior="training"` a probability is that of an article like those of training, and with
`thresholds="validation"` each topic has the threshold at which its F1 was best on held-out rows. Beside it are one
logistic regression for each label, with and without class weights.

Needs `arxiv/minilm384.npz` in the folder named by `ECRT_DATA`: int8 features `x` with a `scale` for each column,
labels packed by `numpy.packbits` as `y_packed`, and their `names`. `python -m paper arxiv` measures all labels.
"""

import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score
from sklearn.multiclass import OneVsRestClassifier

from ecrt import ECRTClassifier

path = Path(os.environ.get("ECRT_DATA", "")) / "arxiv" / "minilm384.npz"
if not path.is_file():
    sys.exit(f"There is no {path}: set ECRT_DATA to the folder that holds it.")
with np.load(path) as data:
    rows = np.random.default_rng(0).permutation(len(data["x"]))[:12000]
    X = data["x"][rows] * data["scale"]
    Y = np.unpackbits(data["y_packed"][rows], axis=1)[:, : int(data["n_labels"])]
    labels = pd.DataFrame(Y, columns=data["names"])[data["names"][np.argsort(Y.sum(axis=0))[-40:]]]
X_train, X_test, Y_train, Y_test = X[:6000], X[6000:], labels[:6000], labels[6000:]
articles = Y_train.sum().to_numpy()
few = articles < 100
print(f"{len(articles)} topics of {articles.min()} to {articles.max()} articles; {few.sum()} of them under 100")

precision = {}
for name, clf in {
    "logistic regression": OneVsRestClassifier(LogisticRegression(max_iter=500)),
    "the same, weighted": OneVsRestClassifier(LogisticRegression(max_iter=500, class_weight="balanced")),
    "ECRT, default": ECRTClassifier(class_prior="training", thresholds="validation", random_state=0),
}.items():
    clf.fit(X_train, Y_train)
    precision[name] = average_precision_score(Y_test, clf.predict_proba(X_test), average=None)
    f1 = f1_score(Y_test, clf.predict(X_test), average=None, zero_division=0)
    print(
        f"{name:20} average precision {precision[name].mean():.3f}, macro F1 {f1.mean():.3f}, "
        f"of rare topics {f1[few].mean():.3f}"
    )

figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
for (name, values), marker in zip(precision.items(), "xso", strict=True):
    axes.scatter(articles, values, s=25, marker=marker, label=name)
axes.set(xlabel="training articles of the topic", ylabel="average precision", xscale="log")
axes.legend()
figure.savefig("text_labels.png", dpi=90, metadata={"Description": "Average precision of each topic against its size"})
