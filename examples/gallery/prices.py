"""Prices: the expensive ones are rare

Prices of diamonds. Most cost less than 5,000 dollars, a few more than 15,000, and a regression that is good on
average is worst on those. `ECRTRegressor` gives regions of the target with few rows more weight, and synthetic rows,
where held-out rows gain by it. `regression_metrics` splits test rows into those where training targets are many,
medium and few.

Boosted trees are shown beside it. On such a table they are hard to beat on average; look at the right end, where
diamonds are few. The data are those of the package plotnine, which need not be imported: `pip install --no-deps
plotnine`. Of 6,000 diamonds half are learned from, the others tested. `python -m paper regression` has intervals.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from ecrt import ECRTRegressor
from ecrt.metrics import regression_metrics

package = find_spec("plotnine")
if package is None:
    sys.exit("The prices come with plotnine: pip install --no-deps plotnine.")
table = pd.read_csv(Path(package.origin).parent / "data" / "diamonds.csv").sample(6000, random_state=0)
price = table.pop("price").to_numpy(dtype=float)
train, test = slice(0, 3000), slice(3000, None)

as_codes = table.assign(**{name: table[name].astype("category").cat.codes for name in ("cut", "color", "clarity")})
trees = HistGradientBoostingRegressor(random_state=0).fit(as_codes[train], price[train])
reg = ECRTRegressor(random_state=0).fit(table[train], price[train])
found = {"boosted trees": trees.predict(as_codes[test]), "ECRT, default": reg.predict(table[test])}
for name, predicted in found.items():
    groups = regression_metrics(predicted, price[test], price[train])
    print(f"{name:14} mean error " + ", ".join(f"{group} {of['mae']:.0f}" for group, of in groups.items()))

figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
edges = np.arange(0, 20000, 2000)
place = np.digitize(price[test], edges) - 1
for name, predicted in found.items():
    errors = [np.abs(predicted - price[test])[place == at].mean() for at in range(len(edges))]
    axes.plot(edges + 1000, errors, "o-", label=name)
rows = axes.twinx()
rows.hist(price[train], edges, color="0.85", zorder=-1)
rows.set(ylabel="training rows", yscale="log")
axes.set(xlabel="price in dollars", ylabel="mean absolute error")
axes.set_zorder(1)
axes.patch.set_visible(False)
axes.legend(loc="upper left")
figure.savefig("prices.png", dpi=90, metadata={"Description": "Errors of two regressions along the price of diamonds"})
