"""ECRT as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import _fit_context, clone
from sklearn.utils import Tags, check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted
from torch.utils.data import Dataset, Subset, TensorDataset

from ecrt.arrays import Array, Labels
from ecrt.data import ClassRoles, assign_roles, minority_mask, thin_out
from ecrt.data.minority import augmented_mask
from ecrt.data.streams import ArrayRows, RowStream
from ecrt.diagnostics import SourceDiagnostics, SourceMap, SourceRows, diagnose_sources, map_sources, unique_feature
from ecrt.errors import InputError, warn_user
from ecrt.estimators.base import (
    FLOW_ROWS,
    FLOW_SOURCES,
    MLP_SOURCES,
    ClassProbabilities,
    Costs,
    ECRTPredictor,
    Minority,
    Prior,
    Session,
    Space,
    all_or_nothing,
    generator_of,
    input_errors,
    learned_attributes,
)
from ecrt.estimators.inputs import (
    WeightedRows,
    array_items,
    has_several_labels,
    labelled_items,
    read_dataset,
    read_labels,
    read_target_arrays,
    repeated_rows,
    stream_of,
    weighted_rows,
)
from ecrt.estimators.preset import paper_options
from ecrt.flows import ClassPrior, Demixer, SourcePrior, class_moments
from ecrt.metrics import best_thresholds
from ecrt.selection import SELECTION, Problem, PseudoMinority
from ecrt.stages import (
    AUGMENTATION,
    Augmentation,
    Borrowed,
    ByFunction,
    ClassTarget,
    DemixResult,
    EncodeResult,
    Flow,
    GaussianHead,
    Head,
    Kernel,
    LabelTarget,
    Linear,
    LinearHead,
    Member,
    MLPHead,
    NoAugmentation,
    NoDemixing,
    Parametric,
    TreesHead,
    augment_classes,
    sources_of,
)
from ecrt.stages.blending import Attempt, Blend, Worth, transfer, transfer_again
from ecrt.stages.choosing import fit_head
from ecrt.stages.heads import HEAD
from ecrt.stages.parts import Positive, Rule, changed_options
from ecrt.stages.streaming import FeatureStream, refuse_too_many
from ecrt.stages.targets import row_target
from ecrt.workers import Workers

NETWORKS = 4
"""An MLP of the default is the mean of so many networks, which share its hidden units out among them."""

TREES_CLASSES = 3
"""``head="auto"`` grows trees for at most this many classes: with more they cost much and gained nothing."""

SCALE_FEATURES = 16
"""From so many columns on ``head="auto"`` also leaves them in proportion: they may be pixels, or components."""

MANY_LABELLED_ROWS = 50_000
"""With more rows than this ``head="auto"`` for multi-label data is an MLP: a linear head cannot use them."""

MOST_SHOWN = 2000
"""Rows in a picture of the sources."""

EXAMPLES_PER_CLASS = 500
"""Rows kept of each class, to draw from."""

LABEL_EXAMPLES = 20_000
"""Rows kept over all labels of multi-label data; 20 to 500 of each."""


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class ECRTClassifier(ClassProbabilities, ECRTPredictor):
    """Classifier for imbalanced data by energy-based causal representation transfer.

    One invertible mechanism is supposed to generate the features of every class. It is learned where data abound (the
    majority classes) and undone; in the space of independent sources the rare classes are augmented, and a classifier
    with balanced logits is trained there.

    Encoder, de-mixing, augmentation and head are parts: a short name stands for a part with all its defaults, and
    options of a part are set as ``set_params(demixing__objective="gcl")``.

    Parameters
    ----------
    encoder : {"identity", "mlp", "resnet18", "autoencoder"}, nn.Module or Encoder, default="identity"
        z = e(x). The default suits tables and embeddings. A module is copied before it is trained.
    demixing : {"auto", "none", "linear", "flow"}, NoDemixing, Linear, Flow or a sequence of these, default="auto"
        ``"none"`` only standardises: no transfer; ``"linear"`` whitens within classes; ``"flow"`` trains a masked
        autoregressive flow on top. Several predict together, each with a weight that held-out rows choose. ``"auto"``
        is the first two (from 16 columns of one unit on, plain features also under one scale), and the flow where it
        promises a gain: on up to 64 columns, at least 500 rows and more than two classes, if a curved head has been
        better than a linear one.
    augmentation : str, part or callable, default="parametric"
        Synthetic sources of the minority classes: from a Gaussian (``"parametric"``), by shuffling coordinates within
        the class (``"permutation"``), around the class's mean with residuals of the majority classes (``"borrowed"``),
        near its samples (``"kernel"``), between two of them (``"pairs"``), or ``"none"``. Parts such as ``Parametric``
        have their options. A function of the sources of a class, a number and a generator draws as many itself
        (``ByFunction``).
    head : {"auto", "linear", "mlp", "gaussian", "trees"}, a part of these or a sequence of them, default="auto"
        Classifier on the features or sources. Several predict together, weighed as de-mixings are. ``"auto"`` is linear
        and Gaussian heads; on up to 128 columns also an MLP and, with up to three classes, boosted trees, both on the
        plain features. ``("linear", "gaussian", "mlp")`` leaves out the trees.
    minority : "auto", "all", int, labels or callable, default="auto"
        Who is minority: fewer samples than half the median of the classes that hold a uniform share; every class;
        fewer samples than a number; the labels given; or what a function from counts to a mask says.
    class_prior : {"balanced", "training"} or array, default="balanced"
        Prior that ``predict_proba``, ``decision_function`` and ``predict`` assume. For multi-label data: the frequency
        of each label, between 0 and 1; ``"balanced"`` is what it would be if a label were drawn first, each with the
        same probability, and then a row that has it (labels that accompany others stay more frequent).
    costs : array, data frame, mapping or None, default=None
        What each mistake costs, where a row has one label: a row for each true class and a column for each predicted
        one, in the order of the sorted labels, or by name. ``predict`` then takes the class of lowest expected cost
        under ``class_prior``. Held-out rows may move the cuts between classes, where that saves costs for certain;
        ``decision_verdict_`` says so.
    thresholds : {"half", "validation"}, default="half"
        For multi-label data, a label is predicted from a probability of one half on, or from where its F1 is highest on
        held-out rows (labels with fewer than two such rows keep one half).
    selection : {"pseudo-minority"}, PseudoMinority or None, default=None
        Choose options before the fit: some majority classes are cut down to minority size, and what each choice does to
        their hidden samples is measured. Options that were set to other than their defaults are left alone. Where no
        transfer beats plain logit adjustment beyond noise, plain logit adjustment is what is fitted, with a warning.
        With too few classes for this, repeated cross-validation decides.
    validation_fraction : float, default=0.2
        Share of each class held out to stop, choose and compare.
    time_budget : float or None, default=None
        Seconds that ``fit`` may spend on finding members and their weights: what has not been tried by then is left
        out. The result then depends on the machine. The members are fitted on all rows afterwards.
    precision : {"float64", "float32"}, default="float64"
        Of predictions and of ``transform``; training does not depend on it, and it may be set after ``fit``. In
        float32 they are quicker and half as large, and differ by about 1e-5.
    checkpoint : path or None, default=None
        Folder in which a fit keeps what it has trained, twice a minute. A fit that was stopped, also by SIGTERM or
        SIGKILL, goes on from there when it is begun again, with the same result bit by bit on the same machine. A
        folder of other data, options or versions is refused. It may be deleted after the fit.
    device : str, default="auto"
        Where networks are trained: ``"cpu"``, ``"cuda"``, or a GPU if there is one.
    verbose : bool, default=False
        Show progress bars.
    random_state : int, RandomState or None, default=None
        The same seed gives the same result, bit by bit, whatever else runs at the same time and however many threads
        there are. Images on the CPU use all threads, and results are the same up to rounding. A fit has its own random
        generators and leaves those of numpy and torch as they are, also if your module draws from torch.

    Attributes
    ----------
    classes_ : labels.
    multilabel_ : whether a row may have several.
    table_ : how columns are read, ``None`` for images and Datasets.
    class_counts_ : samples of each class, or the sum of their weights.
    minority_classes_, demixed_on_ : labels called minority; labels that de-mixing learned from.
    members_ : what predicts together: de-mixing, head, weight and held-out loss of each, with the fitted modules. The
        first is the one with the best transfer: ``transform``, ``sample``, the diagnostics and all that follows are of
        it.
    verdict_ : what transfer was worth on held-out rows, in one sentence.
    cost_matrix_, decision_, decision_verdict_ : with ``costs``: these in the order of ``classes_``, what held-out rows
        chose, and a sentence on it.
    unlabelled_verdict_, unlabelled_used_ : what unlabelled rows were worth, in one sentence; whether they are used.
    encoder_, demixer_, head_ : the fitted modules.
    demixing_, head_name_ : kinds of its de-mixing and its head.
    parts_ : its parts: encoder, demixing, augmentation and head.
    signal_weight_ : share of signal in each source.
    history_ : losses of every trained part, restarts and candidates.
    diagnostics_ : independence of sources in each class, round-trip error, likelihood, the theorem's conditions.
    theory_met_ : whether those conditions hold.
    selection_ : with ``selection``, what was tried and chosen, and a sentence on it.
    label_log_odds_ : of multi-label data, log-odds of the frequencies of labels, in training and balanced.
    thresholds_ : likewise, with ``thresholds="validation"``, the balanced logit from which each label is predicted.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(600, n_classes=4, n_informative=6, weights=[.4, .3, .25, .05], random_state=0)
    >>> clf = ECRTClassifier(demixing="linear", random_state=0).fit(X, y)
    >>> clf.predict_proba(X).shape
    (600, 4)
    >>> clf.minority_classes_.tolist()
    [3]
    """

    _roles = ECRTPredictor._roles | {"augmentation": AUGMENTATION, "head": HEAD, "selection": SELECTION}
    _streams = True
    augmentation: str | Augmentation | Callable[..., Any] = "parametric"
    head: str | Head | Sequence[str | Head] = "auto"
    minority: Minority = "auto"
    class_prior: Prior = "balanced"
    costs: Costs = None
    thresholds: Literal["half", "validation"] = "half"
    selection: str | PseudoMinority | None = None
    time_budget: Positive | None = None

    @classmethod
    def paper(
        cls, data: str = "tiny-imagenet", *, source_prior: SourcePrior = "per-class", **options: Any
    ) -> ECRTClassifier:
        """The paper's method as it stands: encoder, flow on its features, MLP head with a plain loss, nothing else.

        What is ours stays out of it, and can be put in step by step: ``set_params(head__loss="logit-adjusted",
        class_prior="balanced")``, ``set_params(demixing__signal_weights=True)``,
        ``set_params(demixing__linear_first=True)``.

        Parameters
        ----------
        data : {"mnist", "cifar100", "inaturalist", "tiny-imagenet", "arxiv"}, default="tiny-imagenet"
            Data set of the supplement whose networks and weights are taken.
        source_prior : {"per-class", "shared"}, default="per-class"
            ECRT-MP, whose synthetic sources come from the trained priors of the classes, or ECRT-1P, where they are
            permuted.
        options : of the classifier, in place of these.

        Examples
        --------
        >>> ECRTClassifier.paper("mnist").augmentation
        Parametric(pseudo_samples=0.0, source='prior', weight=0.001, weighting='added')
        """
        return cls(**(paper_options(data, source_prior) | options))

    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(
        self,
        X: ArrayLike | Dataset[Any],
        y: ArrayLike | None = None,
        X_unlabelled: ArrayLike | Dataset[Any] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> ECRTClassifier:
        """Learn encoder, de-mixing and head.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features), images (n_samples, channels, height,
            width) for an encoder that takes them, or a torch Dataset of (x, y). A table may hold categories, dates and
            missing values; ``table_`` says how each column was read. A memory-mapped array of more than 2**27 cells, an
            IterableDataset and ``ecrt.FileRows`` (folders of Parquet and Arrow files) are read block by block, and
            need not fit in memory.
        y : labels; not given with a Dataset. Where a row may have several labels: an indicator of zeros and ones, dense
            or sparse, one column for each label (of a data frame, its column names are ``classes_``).
        X_unlabelled : rows without a label, as ``predict`` takes them, where a row has one label. The heads are fitted
            a second time with what these rows are likely to be, and become members if held-out rows are then predicted
            better by a standard error; ``unlabelled_verdict_`` says so. A fit takes some four times as long.
        sample_weight : how often each row occurs. Whole numbers are as good as rows that are repeated, in any order,
            and 0 as good as rows that are left out. Weights count in every number, mean, variance and loss. Several
            labels for each row, an encoder that is trained, ``selection``, ``X_unlabelled`` and augmentation by
            ``Borrowed``, ``Kernel`` or a function take whole numbers alone, and repeat rows.
        """
        stream = stream_of(X, y)
        if stream is not None:
            return self._fit_streamed(
                stream, X_unlabelled=X_unlabelled is not None, sample_weight=sample_weight is not None
            )
        rows = weighted_rows(X, y, sample_weight)
        several = has_several_labels(rows.X, rows.y)
        self._check_parts(self._rules(several))
        X, y, weight, _ = self._weighed(rows, several, X_unlabelled)
        if several:
            if self.selection is not None:
                raise InputError("selection needs one label for each row: use selection=None for multi-label data.")
            if X_unlabelled is not None:
                raise InputError("X_unlabelled needs one label for each row: leave it out for multi-label data.")
            return self._fit_labels(X, y)
        if self.selection is not None:
            return self._fit_selected(X, y, X_unlabelled)
        return self._fit_classes(X, y, X_unlabelled, weight=weight)

    def _fit_streamed(self, rows: RowStream, **given: bool) -> ECRTClassifier:
        """Fit on rows that are read block by block; ``given``: arguments that need all of them in memory."""
        trained = {"An encoder that is trained": self._encoder.trains, "selection": self.selection is not None}
        self._refuse_beside_stream(**given, **trained)
        if not rows.labelled:
            raise InputError("The rows have no labels: items (x, y), or a target column, are needed.")
        self._check_parts(self._rules(several=False))
        plain = self._encoder.network == "identity"
        if plain and isinstance(rows, ArrayRows) and len(rows.X) > rows.most_kept:
            refuse_too_many(rows.n_columns, 2)
        scan = rows.scan()
        if plain and not scan.complete:
            refuse_too_many(scan.X.shape[1], len(scan.classes))
        if scan.complete:
            X, y, weight, _ = self._weighed(weighted_rows(scan.X, scan.classes[scan.y]), False, None)
            return self._fit_classes(X, y, weight=weight)
        return self._fit_classes(scan.X, scan.classes[scan.y], stream=rows)

    @all_or_nothing
    def refit(
        self,
        X: ArrayLike | Dataset[Any],
        y: ArrayLike | None = None,
        X_unlabelled: ArrayLike | Dataset[Any] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> ECRTClassifier:
        """Fit on other rows with the members, settings and weights of the last fit: what was tested is then used.

        Parameters
        ----------
        X, y : as ``fit`` takes them; y is not used with a Dataset.
        X_unlabelled : rows without a label; needed where the last fit used such rows, and not used otherwise. The
            members, fitted without them first, say what they are likely to be.
        sample_weight : how often each row occurs, as in ``fit``.
        """
        before = self._settled()
        if self.unlabelled_used_ and X_unlabelled is None:
            raise InputError("The last fit used unlabelled rows: give refit X_unlabelled as well, or fit again.")
        rows = weighted_rows(X, None if isinstance(X, Dataset) else y, sample_weight)
        X_unlabelled = X_unlabelled if self.unlabelled_used_ else None
        rows = self._weighed(rows, self.multilabel_, X_unlabelled)
        if self.multilabel_:
            return self._fit_labels(rows.X, rows.y, before)
        return self._fit_classes(rows.X, rows.y, X_unlabelled, before, rows.weight)

    def _weighed(self, rows: WeightedRows, several: bool, X_unlabelled: Any) -> WeightedRows:
        """Rows with their weights, or repeated where some part cannot use weights."""
        lends = isinstance(self._parts("augmentation")[0], Borrowed | ByFunction | Kernel)
        cannot = {
            "Multi-label data": several,
            "An encoder that is trained": self._encoder.trains,
            "selection": self.selection is not None,
            "X_unlabelled": X_unlabelled is not None,
            f"augmentation={self.augmentation!r}": lends,
        }
        who = next((name for name, true in cannot.items() if true), None)
        return rows if who is None else repeated_rows(rows, who)

    def _rules(self, several: bool | None = None) -> Iterator[Rule]:
        """Options that have an effect only with some others; ``several``: whether rows have several labels."""
        yield from super()._rules()
        augmentation = self._parts("augmentation")[0]
        learns = not self._parts("head") or any(not isinstance(head, GaussianHead) for head in self._parts("head"))
        weighed = {"weight", "n_synthetic"} & changed_options(augmentation)
        needs = "a linear or MLP head for its weight and n_synthetic: the Gaussian one learns from real rows alone"
        yield "augmentation", learns or not weighed, needs
        heads = self._parts("head")
        only_plain = not self._parts("demixing") and heads and all(isinstance(one, TreesHead) for one in heads)
        needs = "another head as well, or a demixing: with demixing='auto', trees learn from plain rows alone"
        yield "augmentation", not only_plain, needs
        needs = "rows with one label each: the residuals of other classes are borrowed"
        yield "augmentation", not (several and isinstance(augmentation, Borrowed)), needs
        from_prior = isinstance(augmentation, Parametric) and augmentation.source == "prior"
        flows = self._parts("demixing")
        trained = flows and all(isinstance(one, Flow) and one.source_prior == "per-class" for one in flows)
        needs = "a demixing by Flow(source_prior='per-class') alone: no other trains the priors to draw from"
        yield "augmentation", bool(trained) or not from_prior, needs
        yield "thresholds", several is not False, "rows with several labels"
        yield "costs", not several, "rows with one label each"

    def _fit_classes(
        self,
        X: Any,
        y: Any,
        X_unlabelled: Any = None,
        before: tuple[Member, ...] = (),
        weight: Array | None = None,
        stream: RowStream | None = None,
    ) -> ECRTClassifier:
        """Learn encoder, de-mixing and head, with one label for each row.

        ``before``: members to fit again; ``stream``: all rows, where X and y are those that its scan has kept.
        """
        items, labels = self._read_classes(X, y)
        unlabelled = None if X_unlabelled is None else self._read_unlabelled(X_unlabelled)
        rare = self._known_minority if before else self.minority
        counts = self._class_counts(labels, weight) if stream is None else stream.scan().counts
        self._keep_counts(counts, multilabel=False)
        roles = assign_roles(counts, self.classes_, minority=rare, **self._learners)
        lenders = counts[~roles.augmented]
        if isinstance(self._parts("augmentation")[0], Borrowed) and lenders.max(initial=0) < 2:
            raise InputError(
                "augmentation='borrowed' would have no effect: all classes are augmented, so that none has residuals "
                "to lend. Use augmentation='parametric', or name fewer classes in minority."
            )
        with self._session() as session:
            self._check_heads(row_target(labels, roles, self._parts("augmentation")[0], session.rng, session.device))
            encoded = self._encode(items, labels, roles, session)
            z, y_rows = encoded.features[encoded.learn_rows], labels[encoded.learn_rows]
            more = None if unlabelled is None else self._encoded(unlabelled)
            if more is not None and more.shape[1] != z.shape[1]:
                raise InputError(f"X_unlabelled has {more.shape[1]} features for each row, X has {z.shape[1]}.")
            mine = None if weight is None else weight[encoded.learn_rows]
            every = None if stream is None else self._kept_of(stream, session)
            found = self._transfer(z, y_rows, encoded, roles, session, before, more, mine, every)
        if found is not None:
            self._decide(found.trial if mine is None else None, y_rows)  # weighted rows cannot move cuts
        elif hasattr(self, "decision_") and len(self.decision_.offsets) != len(self.classes_):
            self._forget_decision()
        keep = thin_out(y_rows, dict.fromkeys(range(len(counts)), EXAMPLES_PER_CLASS), session.rng)
        if mine is not None:  # as often as they weigh
            keep = np.concatenate([_by_weight(keep[y_rows[keep] == label], mine) for label in range(len(counts))])
        self._keep_examples(z[keep], y_rows[keep], y_rows[keep], self.classes_, roles.demixed_on)
        return self

    def _kept_of(self, rows: RowStream, session: Session) -> FeatureStream:
        """Features of all rows, of which those in memory are some."""
        scan = rows.scan()
        session.progress.start(f"{scan.counts.sum():,} rows are read block by block, {len(scan.y):,} are kept", 1)
        session.progress.finish()
        return self._feature_stream(rows, self.validation_fraction)

    def _read_unlabelled(self, X: Any) -> Any:
        """Rows without labels, read as X was; a Dataset as it is."""
        if isinstance(X, Dataset):
            return X
        try:
            return self._read_rows(X)
        except ValueError as error:  # ours or scikit-learn's
            raise InputError(f"X_unlabelled: {error}") from error

    @property
    def _known_minority(self) -> Minority:
        """Who was minority in the last fit, of the classes that there are now."""
        known = np.intersect1d(self.minority_classes_, self.classes_)
        return known.tolist() if len(known) and self.minority != "all" else self.minority

    def _transfer(
        self,
        z: Array,
        y: Any,
        encoded: EncodeResult,
        roles: ClassRoles,
        session: Session,
        before: tuple[Member, ...],
        unlabelled: Array | None = None,
        weight: Array | None = None,
        stream: FeatureStream | None = None,
    ) -> Blend | None:
        """Find members, or fit those of before again, and keep them; the trial of those that were found."""
        self.minority_classes_ = self.classes_[roles.minority]
        self.demixed_on_ = self.classes_[roles.demixed_on & (self.class_counts_ > 0)]
        options: dict[str, Any] = {
            "roles": roles, "validation": self.validation_fraction, "unlabelled": unlabelled, "weight": weight,
            **vars(session),
        }  # fmt: skip
        if before:
            known = {name: value for name, value in self.history_.items() if name not in ("encoder", "restarts")}
            demixed, members = transfer_again(z, y, members=before, **options)
            self._keep_members(members, demixed.restarts, encoded)
            self.history_ |= known
            return None
        found = transfer(
            z, y, attempts=self._attempts(z, roles, self.multilabel_), seconds=self.time_budget,
            fresh=encoded.fresh[encoded.learn_rows], stream=stream, **options,
        )  # fmt: skip
        self._keep_members(found.members, found.demixed.restarts, encoded)
        self.history_ |= {
            "head_candidates": found.choice.candidates,
            "head_setting": found.choice.setting,
            "tried": found.tried,
            "transfer": None if found.worth is None else found.worth._asdict(),
        }
        if unlabelled is not None:
            tried = {} if found.unlabelled is None else found.unlabelled._asdict()
            self.history_["unlabelled"] = {"rows": len(unlabelled), "alike": found.alike, **tried}
        return found

    def _attempts(self, z: Array, roles: ClassRoles, several: bool) -> list[Attempt]:
        """What to try, the simplest first: plain features, linear de-mixing and a flow."""
        n_rows, n_features = z.shape
        demixings, heads, augmentation = self._parts("demixing"), self._parts("head"), self._parts("augmentation")[0]
        few = self._n_sources(n_features) <= MLP_SOURCES or several
        mlp: list[Head] = [MLPHead() if several else MLPHead(dropout=0.0, networks=NETWORKS)] if few else []
        simple: list[Head] = [LinearHead()] if several else [LinearHead(), GaussianHead()]
        if several and n_rows > MANY_LABELLED_ROWS:
            simple = []
        if demixings:
            return [Attempt(one, heads or (*simple, *mlp), augmentation) for one in demixings]
        if not simple:
            return [Attempt(Linear(), heads or mlp, augmentation)]
        trees: list[Head] = [TreesHead()] if few and not several and len(roles.counts) <= TREES_CLASSES else []
        on_sources = [one for one in heads if not isinstance(one, TreesHead)]
        attempts = [Attempt(NoDemixing(), heads or (LinearHead(), *mlp, *trees), NoAugmentation())]
        if not heads and n_features >= SCALE_FEATURES and _one_unit(z):
            attempts.append(Attempt(NoDemixing(scaling="one"), (LinearHead(),), NoAugmentation()))
        if on_sources or not heads:
            attempts.append(Attempt(Linear(), on_sources or simple, augmentation))
            if n_features <= FLOW_SOURCES and n_rows >= FLOW_ROWS and roles.demixed_on.sum() > 2:
                attempts.append(Attempt(Flow(), on_sources or (*simple, *mlp), augmentation, if_promising=True))
        return attempts

    @property
    def _training_frequencies(self) -> Array:
        """How often each class occurs in training, synthetic samples included where they are added."""
        frequencies = super()._training_frequencies
        rare = augmented_mask(self.class_counts_, np.isin(self.classes_, self.minority_classes_), self.minority)
        frequencies = frequencies * np.add(*self.parts_["augmentation"].multiples(frequencies, rare))
        return np.asarray(frequencies / frequencies.sum())

    @property
    def verdict_(self) -> str:
        """What transfer was worth on held-out rows, in one sentence."""
        check_is_fitted(self)
        worth = self.history_["transfer"]
        if worth is None and any(one.transfers for one in self.members_):
            return "Transfer was not compared with plain features, which were not tried."
        if worth is None:
            return "No transfer was tried: all members predict from plain features."
        gain, width = worth["gain"], 1.96 * worth["error"]
        if worth["skill"] <= 1.96 * worth["skill_error"]:
            return "Held-out rows are predicted no better than by chance, with transfer or without."
        figures = f"{worth['blend']:.3f} with it, {worth['plain']:.3f} without"
        if abs(gain) <= width:
            return (
                f"Transfer changed the held-out loss by no more than chance: {figures} "
                f"(saved {gain:+.3f}, 95 % interval {gain - width:+.3f} to {gain + width:+.3f})."
            )
        how = "lowered" if gain > 0 else "raised"
        low, high = sorted((abs(gain) - width, abs(gain) + width))
        return (
            f"Transfer {how} the held-out loss by {abs(gain):.3f} (95 % interval {low:.3f} to {high:.3f}): {figures}."
        )

    @property
    def unlabelled_used_(self) -> bool:
        """Whether the members have learned from unlabelled rows as well."""
        check_is_fitted(self)
        return any(one.taught and one.weight > 0 for one in self.members_)

    @property
    def unlabelled_verdict_(self) -> str:
        """What unlabelled rows were worth on held-out rows, and whether they are used; empty without any."""
        check_is_fitted(self)
        tried = self.history_.get("unlabelled")
        if tried is None:
            return ""
        rows = f"{tried['rows']:,} unlabelled rows"
        if not tried["alike"]:
            return f"The {rows} are not used: no mixture of the classes has the means of their columns."
        if "gain" not in tried:
            return f"The {rows} are not used: there was no time to try them."
        gain, width = tried["gain"], 1.96 * tried["error"]
        figures = (
            f"the held-out loss is {tried['blend']:.3f} with them, {tried['plain']:.3f} without (saved {gain:+.3f}, "
            f"95 % interval {gain - width:+.3f} to {gain + width:+.3f})"
        )
        if self.unlabelled_used_:
            return f"The {rows} are used: {figures}."
        if Worth(**{name: tried[name] for name in Worth._fields}).pays:
            why = "no model that learned from them has a weight in the end"
        elif tried["gain"] > tried["error"]:
            why = "rows are predicted no better than by chance"
        else:
            why = "that saves no more than its standard error"
        return f"The {rows} are not used, since {why}: {figures}."

    def sample(
        self,
        n_per_class: int,
        classes: Iterable[Any] | None = None,
        space: Space = "source",
        random_state: int | np.random.RandomState | None = None,
    ) -> tuple[Array, NDArray[Any]]:
        """Draw synthetic samples by the fitted ``augmentation``.

        Parameters
        ----------
        n_per_class : samples of each class.
        classes : labels to draw; ``None`` for all.
        space : ``"source"``; ``"feature"`` to invert the de-mixing (with the identity encoder, the columns of X as
            numbers); or ``"input"`` to decode these features too, where the encoder has a decoder.
        random_state : seed of the draw.
        """
        self._check_draw(n_per_class, space)
        wanted = self.classes_ if classes is None else np.asarray(list(classes))
        unknown = np.setdiff1d(wanted, self.classes_)
        if len(unknown):
            raise InputError(f"No such class: {unknown.tolist()}. Known: {self.classes_.tolist()}.")
        z, y = self._examples
        part = self.parts_["augmentation"]
        config = Parametric() if isinstance(part, NoAugmentation) else clone(part)
        config.set_params(weight=1.0, n_synthetic=n_per_class)
        majority = ~np.isin(self.classes_, self.minority_classes_)
        known = _as_demixed(self.members_[0], self.demixer_, z)
        drawn = augment_classes(
            known.learned, y, np.isin(self.classes_, wanted), known.within_variance, config,
            generator_of(random_state), lenders=majority, prior=known.trained_prior,
            trained=np.isin(self.classes_, self.demixed_on_),
        )  # fmt: skip
        return self._restored(drawn.s, space), self.classes_[drawn.y]

    def plot_sources(self, method: Literal["tsne", "pca"] = "tsne", *, axes: Any = None, random_state: int = 0) -> Any:
        """Draw rows that the fit has kept, and synthetic samples of the minority classes, in the space of the sources.

        Sources are in the units of the head. Two are drawn as they are; of more, two dimensions are made.

        Parameters
        ----------
        method : t-SNE, which keeps neighbours together, or principal components.
        axes : of matplotlib, to draw on; ``None`` for a new figure, ``plot_sources().figure``.
        random_state : seed of the synthetic samples and of t-SNE.

        Returns
        -------
        axes : of matplotlib.
        """
        from ecrt.report.sources import plot_source_map

        if method not in ("tsne", "pca"):
            raise InputError(f"method={method!r}: use 'tsne' or 'pca'.")
        check_is_fitted(self)
        z, y = self._examples
        rows = np.sort(np.random.default_rng(random_state).permutation(len(z))[:MOST_SHOWN])
        minority = np.flatnonzero(np.isin(self.classes_, self.minority_classes_))
        scale, drawn = self.members_[0].scale, np.empty((0, self._n_features_out))
        drawn_y = minority[:0]
        if len(minority):
            each = max(min(30, MOST_SHOWN // len(minority)), 1)
            drawn, labels = self.sample(each, self.minority_classes_.tolist(), random_state=random_state)
            drawn_y = np.searchsorted(self.classes_, labels)
        real, synthetic, names = map_sources(
            sources_of(self.demixer_, z[rows]) * scale, drawn * scale, method, random_state
        )
        shown = SourceMap(real, y[rows], synthetic, drawn_y, names)
        return plot_source_map(shown, self.classes_.astype(str), minority.tolist(), axes)

    @all_or_nothing
    def add_classes(self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None) -> ECRTClassifier:
        """Learn new classes, from one sample each on, with encoder and de-mixing as they are.

        The head is fitted anew, under the setting that ``fit`` chose, on sources kept of the known classes and on those
        of the new ones, which are minority.

        Parameters
        ----------
        X, y : rows of new classes alone and their labels, or a Dataset of both.
        """
        check_is_fitted(self)
        if self.multilabel_:
            raise InputError("Classes cannot be added to a model of multi-label data.")
        if not isinstance(self.class_prior, str):
            raise InputError("class_prior has a number for each class: set it to 'balanced' or 'training' first.")
        if self.costs is not None:
            raise InputError("costs has a row for each class: set it to None first.")
        if self.unlabelled_used_:
            warn_user("The heads are fitted anew without the unlabelled rows that the fit used.")
        if isinstance(X, Dataset):
            _, known, labels = read_dataset(X)
            names = known[labels]
        else:
            with input_errors():
                names = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=None)
                check_consistent_length(X, names)
        z = self._features(X)
        classes = _all_classes(self.classes_, names)
        old, new = np.searchsorted(classes, self.classes_), np.searchsorted(classes, names)
        counts = np.bincount(new, minlength=len(classes)).astype(self.class_counts_.dtype)
        counts[old] = self.class_counts_
        minority = ~np.isin(classes, self.classes_) | np.isin(classes, self.minority_classes_)
        demixed_on = np.isin(classes, self.demixed_on_)
        roles = ClassRoles(
            counts=counts, minority=minority, augmented=minority, encoded_on=demixed_on, demixed_on=demixed_on
        )
        kept_z, kept_y = self._examples
        all_z, all_y = np.concatenate([kept_z, z]), np.concatenate([old[kept_y], new])
        demixers = {id(one.demixer): _with_new_priors(one, z, new, len(classes), old) for one in self.members_}
        members = []
        with self._session() as session:
            for one in self.members_:
                # De-mixing knows the labels of the rows that were kept: they cannot choose, and the choice of the fit
                # stands.
                target = ClassTarget(all_y, roles, one.augmentation, session.rng, session.device)
                demixed = _as_demixed(one, demixers[id(one.demixer)], all_z)
                network = fit_head(target, demixed, one.head, one.setting, one.temperature, session.progress)
                members.append(replace(one, demixer=demixed.demixer, network=network))
        rows = SourceRows.of(members[0].demixer, z, new)
        self._diagnosis = _with_new(self.diagnostics_, diagnose_sources(members[0].demixer, rows, classes, demixed_on))
        self.minority_classes_, self.class_counts_ = classes[minority], counts
        self.classes_, self.members_ = classes, tuple(members)
        self._examples = all_z, all_y
        self._forget_decision()
        return self

    def _fit_labels(self, X: Any, y: Any, before: tuple[Member, ...] = ()) -> ECRTClassifier:
        """Learn encoder, de-mixing and a column of logits for each label; ``before``: members to fit again."""
        labelled, self.classes_ = read_labels(read_target_arrays(X) if isinstance(X, Dataset) else y)
        rare = self._known_minority if before else self.minority
        places = np.arange(labelled.indicator.shape[0])
        if isinstance(X, Dataset):
            self.table_, items = None, labelled_items(X, places)
        else:
            items = array_items(self._learn_rows(X, labelled.rarest)[0], places)
        counts, n_labels = labelled.counts, len(self.classes_)
        if counts.max(initial=0) < 2 or (counts == labelled.indicator.shape[0]).all():
            raise InputError(f"None of the {n_labels} labels can be learned: at least one needs two rows that have it.")
        self._keep_counts(counts, multilabel=True)
        _say(self.classes_[counts == 0], "No row has", "they cannot be learned and will never be predicted")
        always = counts == labelled.indicator.shape[0]
        _say(self.classes_[always], "Every row has", "there is nothing to learn, and they will always be predicted")
        roles = assign_roles(counts, self.classes_, minority=rare, **self._learners)
        with self._session() as session:
            target = LabelTarget(labelled, roles, self._parts("augmentation")[0], session.rng, session.device)
            self._check_heads(target)
            wanted = target.encoder_target(self._encoder)
            encoded = self._encode(items, labelled.rarest, roles, session, groups=labelled.sides(), target=wanted)
            z, learned = encoded.features[encoded.learn_rows], labelled[encoded.learn_rows]
            found = self._transfer(z, learned, encoded, roles, session, before)
        self.sparse_output_ = sparse.issparse(y)
        self.label_log_odds_ = np.stack([
            target.learned_odds("training"), target.odds("balanced")
        ])  # fmt: skip
        if found is not None:
            self.thresholds_ = None
            if self.thresholds == "validation":
                logits, judged = found.trial()
                self.thresholds_ = best_thresholds(logits, learned[judged].present(), -self.log_class_prior_)
        label, row = learned.label, learned.incidences.row
        most = int(np.clip(LABEL_EXAMPLES // n_labels, 20, EXAMPLES_PER_CLASS))
        keep = thin_out(label, dict.fromkeys(range(n_labels), most), session.rng)
        self._keep_examples(z[row[keep]], label[keep], label[keep], self.classes_, roles.demixed_on & (counts > 0))
        return self

    def _fit_selected(self, X: Any, y: Any, X_unlabelled: Any = None) -> ECRTClassifier:
        """Choose options on problems with known answers, then fit with them on all rows."""
        items, labels = self._read_classes(X, y)
        n_classes = len(self.classes_)
        minority = minority_mask(np.bincount(labels, minlength=n_classes), self.classes_, self.minority)

        table = items.tensors[0].numpy() if isinstance(items, TensorDataset) and items.tensors[0].ndim == 2 else None

        def unfamiliar() -> bool:
            if table is None or self._encoder.network != "identity":
                return False
            found = unique_feature(table.astype(np.float64), labels, minority, session.rng)
            return found is not None and found.found

        how: PseudoMinority = self._parts("selection")[0]
        item = items[0][0]
        n_columns = len(item) if item.ndim == 1 else None
        workers = Workers()  # before the session, which works alone; fits elsewhere would not be kept in a checkpoint
        with self._session() as session:
            selection = how.select(
                self, _log_proba, labels, minority, n_columns, unfamiliar=unfamiliar, rng=session.rng,
                progress=session.progress, data=(items if table is None else table, labels, n_classes),
                workers=workers if workers.number > 1 and self.checkpoint is None else None,
            )  # fmt: skip
        if not selection.transfer:
            warn_user(selection.sentence)
        chosen = clone(self).set_params(**selection.options, selection=None).fit(X, y, X_unlabelled)
        self.__dict__ |= learned_attributes(chosen)
        self.selection_ = asdict(selection)
        return self

    def _scores(self, X: Any) -> Array:
        scores = self._outputs(X)
        scores += self.log_class_prior_.astype(scores.dtype)
        if self.multilabel_:
            never = self.class_counts_ == 0
            scores[:, never] = self.label_log_odds_[0, never]
        return scores

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        gaussian = any(isinstance(head, GaussianHead) for head in self._parts("head"))
        tags.classifier_tags.multi_label = not gaussian and self.selection is None
        return tags


def _log_proba(candidate: Any, problem: Problem, data: Any, labels: Labels, n_classes: int) -> Array:
    """Fit a candidate on the rows of a problem to learn from; log-probabilities of those to check on."""
    learned, checked = (
        (Subset(data, rows.tolist()),) if isinstance(data, Dataset) else (data[rows], labels[rows])
        for rows in (problem.learn, problem.check)
    )
    candidate.set_params(costs=None).fit(*learned)  # labels are numbers there
    found = np.full((len(problem.check), n_classes), -np.inf)
    found[:, candidate.classes_] = candidate.predict_log_proba(checked[0])
    return found


def _by_weight(rows: Labels, weight: Array) -> Labels:
    """As many rows, each about as often as its weight says."""
    end = np.cumsum(weight[rows])
    return rows[np.searchsorted(end, (np.arange(len(rows)) + 0.5) / len(rows) * end[-1])]


def _one_unit(z: Array) -> bool:
    """Whether columns may have one unit, such as pixels and components: most spreads are within a factor of ten."""
    low, high = np.quantile(z.std(axis=0), [0.25, 0.75])
    return bool(high <= 10 * low)


def _as_demixed(member: Member, demixer: Demixer, z: Array) -> DemixResult:
    """The de-mixing of a member, on some rows."""
    share = np.minimum(member.signal_weight**2, 1 - 1e-12)
    return DemixResult(
        demixer=demixer, learned=sources_of(demixer, z), within_variance=member.within_variance,
        signal_to_noise=share / (1 - share), weighted=member.demixing.weighted,
    )  # fmt: skip


def _with_new_priors(member: Member, z: Array, y: Labels, n_classes: int, old: Labels) -> Demixer:
    """The de-mixing of a member, its prior with the Gaussians of the new classes."""
    demixer = member.demixer
    if not isinstance(demixer.prior, ClassPrior):
        return demixer
    s = torch.from_numpy(sources_of(demixer, z))
    prior = ClassPrior(n_classes, s.shape[1]).double()
    prior.set_class(torch.from_numpy(old), demixer.prior.mean_md, demixer.prior.variance_md)
    variance = torch.from_numpy(member.within_variance)
    prior.set_class(*class_moments(s, torch.from_numpy(y), variance, member.demixing.pseudo_samples))
    return Demixer(demixer.linear, prior, demixer.flow).eval()


def _all_classes(known: NDArray[Any], names: NDArray[Any]) -> NDArray[Any]:
    """Old and new labels in order."""
    again = np.intersect1d(known, names) if known.dtype.kind == names.dtype.kind else np.empty(0)
    if len(again):
        raise InputError(f"Known already: {again.tolist()[:10]}. Fit again to learn from more rows of these classes.")
    numbers = [array.dtype.kind in "iufb" for array in (known, names)]
    if numbers[0] != numbers[1]:
        raise InputError(
            f"Known labels are such as {known[0]!r}, new ones such as {names[0]!r}: they must be of one kind."
        )
    return np.unique(np.concatenate([known, np.unique(names)]))


def _with_new(before: SourceDiagnostics, new: SourceDiagnostics) -> SourceDiagnostics:
    """What was measured in the fit, and the new classes beside it."""
    measured = {one.label: one for one in (*new.classes, *before.classes)}
    return replace(before, classes=tuple(measured[one.label] for one in new.classes))


def _say(labels: NDArray[Any], what: str, follows: str) -> None:
    if len(labels):
        more = f" and {len(labels) - 10} more" if len(labels) > 10 else ""
        warn_user(f"{what} the label(s) {labels[:10].tolist()}{more}: {follows}.")
