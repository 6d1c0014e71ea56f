"""Sources as features of any classifier, in a pipeline. Run it with ``python examples/pipeline.py``."""

from __future__ import annotations

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from ecrt import ECRTTransformer
from ecrt.data import imbalanced_digits


def main() -> float:
    """Choose the number of sources by cross-validation; gives the accuracy on test rows."""
    data = imbalanced_digits(n_minority=10, seed=0)
    pipeline = make_pipeline(
        ECRTTransformer(random_state=0), LogisticRegression(class_weight="balanced", max_iter=2000)
    )
    search = GridSearchCV(
        pipeline, {"ecrttransformer__demixing__n_sources": [5, 10, 20, None]}, cv=3, scoring="balanced_accuracy"
    )
    search.fit(data.X_train, data.y_train)
    sources = search.best_estimator_[0]
    accuracy = float(search.score(data.X_test, data.y_test))
    print(f"chosen: {search.best_params_}, lost by going back to features: {sources.reconstruction_error_:.3f} sd")
    print(f"balanced accuracy on test rows: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
