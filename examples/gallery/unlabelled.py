"""Unlabelled rows: use them if they help

Labels cost money, rows do not. Of the handwritten digits 5 to 9 only six are labelled each; 1,000 more images have no
label. `fit(X, y, X_unlabelled=...)` fits heads a second time with what these rows are likely to be, and held-out rows
decide whether this is kept, as [the user guide](../user-guide.md#unlabelled-rows) explains. `unlabelled_verdict_` says
what was decided; rows that do not help are left out, and the model is then the one without them.

Unlabelled rows have a second use, which needs no new fit: `estimate_prior` finds out how frequent classes are among
them. New rows seldom have the frequencies of training. In the picture half of the new images are nines.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from ecrt import ECRTClassifier
from ecrt.data import step_imbalance

X, y = load_digits(return_X_y=True)
X_train, X_new, y_train, y_new = train_test_split(X, y, test_size=1000, stratify=y, random_state=0)
few = step_imbalance(y_train, minority=[5, 6, 7, 8, 9], n_minority=6, rng=np.random.default_rng(0))

clf = ECRTClassifier(demixing="linear", head="linear", random_state=0)
clf.fit(X_train[few], y_train[few])
print(f"labelled rows alone: accuracy {clf.score(X_new, y_new):.3f}")
clf.fit(X_train[few], y_train[few], X_unlabelled=X_new)
print(f"with unlabelled rows: accuracy {clf.score(X_new, y_new):.3f}")
print(clf.unlabelled_verdict_)

nines, others = np.flatnonzero(y_new == 9), np.flatnonzero(y_new < 9)
rows = np.concatenate([nines, np.random.default_rng(0).choice(others, len(nines), replace=False)])
true = np.bincount(y_new[rows]) / len(rows)
estimated = clf.estimate_prior(X_new[rows])
print(f"half of {len(rows)} rows are nines; estimated: {estimated[9]:.3f}")
before = clf.score(X_new[rows], y_new[rows])
after = clf.set_params(class_prior=estimated).score(X_new[rows], y_new[rows])
print(f"accuracy on them: balanced prior {before:.3f}, estimated prior {after:.3f}")

figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
training = clf.class_counts_ / clf.class_counts_.sum()
for at, (name, shares) in enumerate({"training": training, "estimated": estimated, "true": true}.items()):
    axes.bar(np.arange(10) + 0.27 * (at - 1), shares, 0.27, label=name, color=("0.75", "C0", "C2")[at])
axes.set(xlabel="digit", ylabel="share of the rows", xticks=range(10))
axes.legend()
figure.savefig("unlabelled.png", dpi=90, metadata={"Description": "Class frequencies: training, estimated and true"})
