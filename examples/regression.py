"""A skewed target: errors where targets are many and where they are few. Run it with ``python examples/regression.py``.

Most targets are small and a few are large, as prices and durations are. A plain regression looks good on average and is
furthest off where targets are rare.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_friedman1

from ecrt import ECRTRegressor, MLPHead
from ecrt.metrics import regression_metrics


def main() -> dict[str, dict[str, dict[str, float]]]:
    """Fit with and without help for rare targets; gives back all figures."""
    X, y = make_friedman1(1600, n_features=8, noise=0.5, random_state=0)
    y = np.exp(y / 5)
    train, test = slice(0, 800), slice(800, None)
    plain = {"demixing": "none", "region_mass": 0.0, "augmentation": "none"}
    found = {}
    for name, options in {"plain": plain, "ECRT": {}}.items():
        reg = ECRTRegressor(head=MLPHead(epochs=30), random_state=0, **options).fit(X[train], y[train])
        found[name] = regression_metrics(reg.predict(X[test]), y[test], y[train])
        print(f"{name}: mass {reg.region_mass_}, synthetic samples: {reg.augmentation_}")
        for group, figures in found[name].items():
            print(f"  {group:7} {figures['rows']:6.0f} rows   MAE {figures['mae']:7.3f}   RMSE {figures['rmse']:7.3f}")
    return found


if __name__ == "__main__":
    main()
