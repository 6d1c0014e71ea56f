"""A saved model as an MLflow ``pyfunc`` (``pip install mlflow-skinny``): ``python examples/mlflow_model.py``."""

import tempfile

import mlflow
import numpy as np

import ecrt
from ecrt.data import imbalanced_digits


class Served(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        self.model = ecrt.load(context.artifacts["model"])

    def predict(self, context, model_input, params=None):
        return self.model.predict_proba(model_input)


mlflow.models.set_model(Served())


def main(folder: str) -> None:
    data = imbalanced_digits(n_minority=10, seed=0)
    clf = ecrt.ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(data.X_train, data.y_train)
    clf.save(f"{folder}/my-model")
    mlflow.pyfunc.save_model(f"{folder}/served", python_model=__file__, artifacts={"model": f"{folder}/my-model"})
    served = mlflow.pyfunc.load_model(f"{folder}/served")
    same = np.array_equal(served.predict(data.X_test), clf.predict_proba(data.X_test))
    print(f"MLflow gives the same probabilities: {same}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
