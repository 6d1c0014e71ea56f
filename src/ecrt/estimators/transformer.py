"""Sources as features for any pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.utils.data import Dataset

from ecrt.arrays import Array
from ecrt.data import assign_roles, stratified_holdout
from ecrt.diagnostics import SourceRows, diagnose_sources
from ecrt.errors import InputError
from ecrt.estimators.base import ECRTBase, Minority, all_or_nothing, input_errors
from ecrt.estimators.export import ServedModel
from ecrt.estimators.inputs import WeightedRows, in_numpy, like_input, repeated_rows, stream_of, weighted_rows
from ecrt.stages import Demixing, Flow, Linear, NoDemixing, Role, demix
from ecrt.stages.demixing import Incidences
from ecrt.stages.parts import Rule, changed_options
from ecrt.stages.scoring import Way
from ecrt.stages.streaming import demix_all

DEMIXING = Role((NoDemixing, Linear, Flow))


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class ECRTTransformer(ECRTBase):
    """Features to sources that are independent given the label, as far as the classes with data show.

    The first stages of ``ECRTClassifier``, which describes the options, without its head: encoder and de-mixing.

    Parameters
    ----------
    demixing : {"linear", "flow", "none"}, Linear, Flow or NoDemixing, default="linear"
        Without a head there is no held-out loss to choose by, so nothing is chosen here.
    encoder, minority, validation_fraction, precision, checkpoint, device, verbose, random_state
        As in ``ECRTClassifier``.

    Attributes
    ----------
    classes_, class_counts_, minority_classes_, demixed_on_, table_, encoder_, demixer_, signal_weight_, history_,
    diagnostics_, theory_met_ : as in ``ECRTClassifier``.
    reconstruction_error_ : root mean square of z - f^-1(f(z)), each feature in units of its spread: what is lost when
        there are fewer sources than features.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ecrt import Linear
    >>> X, y = load_iris(return_X_y=True)
    >>> sources = ECRTTransformer(demixing=Linear(n_sources=2), random_state=0).fit(X, y)
    >>> sources.transform(X).shape
    (150, 2)
    >>> sources.inverse_transform(sources.transform(X)).shape
    (150, 4)
    """

    _roles = ECRTBase._roles | {"demixing": DEMIXING}
    _streams = True
    demixing: str | Demixing = "linear"
    minority: Minority = "auto"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(
        self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> ECRTTransformer:
        """Learn encoder and de-mixing from rows (or a torch Dataset of (x, y)) and their class labels.

        ``sample_weight`` says how often each row occurs, see ``ECRTClassifier.fit``.
        """
        self._check_parts(self._rules())
        stream = stream_of(X, y)
        if stream is not None:
            trained = {"An encoder that is trained": self._encoder.trains}
            self._refuse_beside_stream(sample_weight=sample_weight is not None, **trained)
            scan = stream.scan()
            X, y, stream = scan.X, scan.classes[scan.y], None if scan.complete else stream
        found = weighted_rows(X, y, sample_weight) if stream is None else WeightedRows(X, y)
        if self._encoder.trains:
            found = repeated_rows(found, "An encoder that is trained")
        X, y, weight, _ = found
        items, labels = self._read_classes(X, y)
        counts = self._class_counts(labels, weight) if stream is None else stream.scan().counts
        roles = assign_roles(counts, self.classes_, minority=self.minority, **self._learners)
        with self._session() as session:
            encoded = self._encode(items, labels, roles, session)
            z, y_rows = encoded.features[encoded.learn_rows], labels[encoded.learn_rows]
            train_rows, held_out_rows = stratified_holdout(
                y_rows, self.validation_fraction, session.rng, eligible=encoded.fresh[encoded.learn_rows]
            )
            mine = None if weight is None else weight[encoded.learn_rows]
            result = demix(
                z, y_rows, train_rows=train_rows, held_out_rows=held_out_rows, demixed_on=roles.demixed_on,
                config=self._parts("demixing")[0],
                incidences=None if mine is None else Incidences(np.arange(len(z)), mine, counted=True), **vars(session),
            )  # fmt: skip
            config = self._parts("demixing")[0]
            if stream is not None and not isinstance(config, Flow):
                result = demix_all(config, self._feature_stream(stream), z, y_rows, roles.demixed_on)
        self.class_counts_ = counts
        self.minority_classes_ = self.classes_[roles.minority]
        self.demixed_on_ = self.classes_[roles.demixed_on]
        self.demixing_, self.demixer_ = self._parts("demixing")[0].kind, result.demixer
        self.signal_weight_ = result.signal_weight
        self.history_: dict[str, Any] = {"encoder": encoded.history, "restarts": result.restarts}
        rows = SourceRows.of(self.demixer_, z, y_rows)
        # At once: nothing else here has to keep the sources of all rows.
        self._diagnosis = diagnose_sources(self.demixer_, rows, self.classes_, roles.demixed_on)
        spread = z.std(axis=0)
        lost = (z - self.inverse_transform(rows.s)) / np.where(spread > 0, spread, 1.0)
        self.reconstruction_error_ = float(np.sqrt(np.average((lost**2).mean(axis=1), weights=mine)))
        return self

    def _rules(self) -> Iterator[Rule]:
        """Options that have an effect only with some others."""
        yield from super()._rules()
        demixing = self._parts("demixing")[0]
        yield "validation_fraction", isinstance(demixing, Flow), "demixing='flow'"
        needs = "a head for its signal_weights: a transformer gives sources as they are"
        yield "demixing", "signal_weights" not in changed_options(demixing), needs

    def _served(self) -> ServedModel:
        way = Way(self.demixer_, np.ones(self._n_features_out), nn.Identity())
        return ServedModel(self.encoder_, [way], nn.Identity(), self._dtype)

    def inverse_transform(self, S: ArrayLike) -> Array:
        """Features of sources, what the sources do not tell set to its mean: f(f^-1(s)) = s holds.

        With the identity encoder these are the columns of X as numbers (``table_.names_out`` names them).
        """
        check_is_fitted(self)
        with input_errors():
            s = check_array(in_numpy(S), dtype=np.float64, input_name="S")
        if s.shape[1] != self._n_features_out:
            raise InputError(f"S has {s.shape[1]} columns; there are {self._n_features_out} sources.")
        with torch.no_grad():
            found: Array = like_input(self.demixer_.inverse(torch.tensor(s)).numpy(), S)
        return found
