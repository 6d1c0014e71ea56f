"""Fraud: one transaction in fifty

A table in the form in which such data come: amounts, categories and gaps. It is made up here, so that it can be
shared. Fraud has three habits: small payments at night with a new card, large ones abroad, and many within an hour.

The data frame is taken as it is. Two classes are too few to transfer anything between them, and a warning says so.
This is a test of the default as a plain classifier for tables, and boosted trees are the method to beat. Analysts can
look at a certain number of cases: a curve shows which share of these is fraud, and how much of all fraud is found.
Probabilities under `class_prior="training"` are those of rows as they come, so that the threshold follows from the
costs: here a check costs 5, and a fraud that is missed 200. With so few frauds to test on, small differences are
noise.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score, log_loss, precision_recall_curve

from ecrt import BaselineClassifier, ECRTClassifier

rng, n = np.random.default_rng(0), 8000
fraud = rng.random(n) < 0.02
habit = np.where(fraud, rng.integers(1, 4, n), 0)
hour = np.where(habit == 1, rng.normal(3, 2, n), rng.normal(15, 5, n)) % 24
abroad = rng.random(n) < np.where(habit == 2, 0.8, 0.1)
table = pd.DataFrame(
    {
        "hour": hour.round(1),
        "amount": np.exp(rng.normal(3.4, 0.9, n) + np.select([habit == 1, habit == 2], [-1.2, 1.6])).round(2),
        "shop": rng.choice(["food", "fuel", "games", "travel"], n),
        "country": np.where(abroad, rng.choice(["BR", "US"], n), rng.choice(["DE", "FR"], n)),
        "payments_last_hour": rng.poisson(np.where(habit == 3, 2.8, 0.3)),
        "card_age": np.where(rng.random(n) < 0.1, np.nan, rng.exponential(np.where(habit == 1, 0.3, 3))).round(2),
    }
).astype({"shop": "category", "country": "category"})
train, test = slice(0, n // 2), slice(n // 2, n)
print(f"{fraud[train].sum()} frauds in {n // 2} rows to learn from, {fraud[test].sum()} in as many to test on")

figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
for name, clf in {
    "ECRT, default": ECRTClassifier(class_prior="training", random_state=0),
    "boosted trees": HistGradientBoostingClassifier(early_stopping=True, random_state=0),
    "logistic regression": BaselineClassifier(method="erm", class_prior="training", random_state=0),
}.items():
    p = clf.fit(table[train], fraud[train]).predict_proba(table[test])[:, 1]
    checked = p > 5 / 200
    cost = 5 * checked.sum() + 200 * (fraud[test] & ~checked).sum()
    precision, recall, _ = precision_recall_curve(fraud[test], p)
    axes.step(recall, precision, where="post", label=name)
    print(
        f"{name:20} average precision {average_precision_score(fraud[test], p):.3f}, "
        f"log-loss {log_loss(fraud[test], p):.4f}, cost {cost}"
    )
print(f"{'nobody is checked':20} cost {200 * fraud[test].sum()}")
axes.set(xlabel="share of all fraud that is found", ylabel="share of fraud among the rows checked")
axes.legend()
figure.savefig("fraud.png", dpi=90, metadata={"Description": "Precision and recall of three classifiers on fraud"})
