"""New classes: digits that nobody has seen before

A classifier is in use, and a class turns up that it does not know. Here it was fitted on the digits 0 to 7; then 8
and 9 come, with 1 to 20 images each. `add_classes` keeps the de-mixing, which was learned from the digits with many
images, and fits the heads anew. That takes a moment, and your old rows are not needed: the model keeps some of their
sources.

Curves show the accuracy on test images of the new digits and of the old ones, as means over three draws of the new
images. The dashed ones are of a model that is fitted from nothing on all rows, old and new.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from ecrt import ECRTClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
old, new = y_train < 8, y_test >= 8
blank = ECRTClassifier(demixing="linear", head="linear", random_state=0)
known = copy.deepcopy(blank).fit(X_train[old], y_train[old])
print(f"known: {known.classes_.tolist()}")

sizes, figures = (1, 2, 5, 10, 20), {"added": [], "fitted anew": []}
for size in sizes:
    draws = {name: [] for name in figures}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        come = np.concatenate([rng.choice(np.flatnonzero(y_train == digit), size, replace=False) for digit in (8, 9)])
        every = np.concatenate([np.flatnonzero(old), come])
        models = {
            "added": copy.deepcopy(known).add_classes(X_train[come], y_train[come]),
            "fitted anew": copy.deepcopy(blank).fit(X_train[every], y_train[every]),
        }
        for name, clf in models.items():
            right = clf.predict(X_test) == y_test
            draws[name].append((right[new].mean(), right[~new].mean()))
    for name, values in draws.items():
        figures[name].append(np.mean(values, axis=0))
    print(
        f"{size:2} images of each: "
        + ", ".join(
            f"{name} {values[-1][0]:.2f} of new and {values[-1][1]:.2f} of old digits"
            for name, values in figures.items()
        )
    )

figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
for (name, values), line in zip(figures.items(), ("o-", "s--"), strict=True):
    for at, (whose, colour) in enumerate({"new": "C1", "old": "C0"}.items()):
        axes.plot(sizes, np.array(values)[:, at], line, color=colour, label=f"{whose} digits, {name}")
axes.set(xlabel="images of each new digit", ylabel="accuracy", xscale="log", xticks=sizes, xticklabels=sizes)
axes.legend()
figure.savefig(
    "new_classes.png", dpi=90, metadata={"Description": "Accuracy on new and old digits by number of images"}
)
