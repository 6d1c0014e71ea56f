"""The paper's preset: its settings beside the supplement's tables, line by line, and that nothing of ours is in it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ecrt import ECRTClassifier, ECRTRegressor, Flow, InputError, MLPHead, NoDemixing, Parametric, load
from ecrt.estimators.preset import SUPPLEMENT
from ecrt.nn import ResNet18
from ecrt.randomness import Dropout
from ecrt.stages import Encoder

FLOW = "FLOW MAF(n_blocks=4, hidden_size=128, n_hidden=2)"

TABLES = {
    "mnist": """\
        Encoder fc(unit=32)+ReLU + fc(unit=32)+ReLU + fc(unit=2)
        Decoder fc(unit=32)+ReLU + fc(unit=32)+ReLU + fc(unit=10)
        {FLOW}
        Reg Weight 1e-2
        Aug Strength 1e-3""",
    "cifar100": """\
        Encoder Resnet18 + fc(unit=32)
        Decoder fc(unit=256)+ReLU + fc(unit=100)
        {FLOW}
        Reg Weight 1e-2
        Aug Strength 1e-3""",
    "inaturalist": """\
        Encoder fc(unit=1024)+ReLU +Dropout(0.1) + fc(unit=512)+ReLU +Dropout(0.1) + fc(unit=32)
        Decoder fc(unit=32)+ReLU +Dropout(0.1) + fc(unit=512)+ReLU +Dropout(0.1) + fc(unit=1010)
        {FLOW}
        Reg Weight 5e-3
        Aug Strength 1e-3""",
    "tiny-imagenet": """\
        Encoder fc(unit=1024)+ReLU +Dropout(0.1) + fc(unit=512)+ReLU +Dropout(0.1) + fc(unit=32)
        Decoder fc(unit=512)+ReLU +Dropout(0.1) + fc(unit=200)
        {FLOW}
        Reg Weight 1e-3
        Aug Strength 1e-3""",
    "arxiv": """\
        Encoder fc(unit=1024)+ReLU +Dropout(0.1) + fc(unit=512)+ReLU +Dropout(0.1) + fc(unit=64)
        Decoder fc(unit=64)+ReLU +Dropout(0.1) + fc(unit=512)+ReLU +Dropout(0.1) + fc(unit=152)
        {FLOW}
        Reg Weight 1e-2
        Aug Strength 1e-2""",
}
"""The supplement's tables of networks and of hyperparameters, each row on a line."""

CLASSES = {"mnist": 10, "cifar100": 100, "inaturalist": 1010, "tiny-imagenet": 200, "arxiv": 152}


def as_table(network: nn.Module) -> str:
    """A network in the words of the supplement."""
    parts: list[str] = []
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            parts.append(f"+ fc(unit={layer.out_features})")
        elif isinstance(layer, nn.ReLU):
            parts[-1] += "+ReLU"
        elif isinstance(layer, Dropout):
            parts.append(f"+Dropout({layer.p})")
        else:
            assert not isinstance(layer, nn.BatchNorm1d)
    return " ".join(parts).removeprefix("+ ")


def weight(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-")


def rows_for(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Random rows or images of as many classes as the data set has, the last ones rarer."""
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(CLASSES[data]), np.arange(CLASSES[data] - 3), np.arange(CLASSES[data] - 3)])
    if data == "cifar100":
        return rng.normal(size=(len(y), 3, 8, 8)), y
    if data == "arxiv":
        return rng.normal(size=(len(y), 12)), np.eye(CLASSES[data], dtype=np.int8)[y]
    return rng.normal(size=(len(y), 12)), y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("data", TABLES)
def test_settings_are_those_of_the_supplement(data):
    """The networks are those of a fit, not what the options promise; ``pytest -s`` shows both sides."""
    X, y = rows_for(data)
    clf = ECRTClassifier.paper(data, random_state=0, device="cpu")
    clf.set_params(**{f"{part}__epochs": 1 for part in ("encoder", "demixing", "head")}).fit(X, y)
    encoder = clf.encoder_
    told = f"Resnet18 + {as_table(encoder[-1])}" if isinstance(encoder, ResNet18) else as_table(encoder)
    flow = clf.demixer_.flow.blocks
    sizes = {tuple(layer.out_features for layer in block.hyper if isinstance(layer, nn.Linear))[:-1] for block in flow}
    ((width, *others),) = sizes
    assert set(others) <= {width}
    here = [
        f"Encoder {told}",
        f"Decoder {as_table(clf.head_)}",
        f"FLOW MAF(n_blocks={len(flow)}, hidden_size={width}, n_hidden={1 + len(others)})",
        f"Reg Weight {weight(clf.demixing.likelihood_weight)}",
        f"Aug Strength {weight(clf.augmentation.weight)}",
    ]
    wanted = [line.strip() for line in TABLES[data].replace("{FLOW}", FLOW).splitlines()]
    for theirs, ours in zip(wanted, here, strict=True):
        print(f"{theirs:<95} | {ours}")
    assert here == wanted
    assert clf.demixing.likelihood_of == "row"
    assert clf.encoder.head_hidden == clf.head.hidden


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), [90, 80, 70, 60, 12])
    return 3 + 2 * rng.normal(size=(len(y), 3)) + 3 * rng.normal(size=(5, 3))[y], y


def quick(clf, **options):
    epochs = {f"{part}__epochs": 2 for part in ("demixing", "head")}
    return clf.set_params(**epochs | options)


def test_the_flow_has_the_features_as_they_are_and_the_head_the_sources(table):
    X, y = table
    clf = quick(ECRTClassifier.paper("mnist", encoder="identity", random_state=0)).fit(X, y)
    signal, rest = clf.demixer_.linear(torch.from_numpy(X))
    torch.testing.assert_close(signal, torch.from_numpy(X))
    assert rest.shape[1] == 0
    (member,) = clf.members_
    np.testing.assert_array_equal(member.scale, np.ones(3))
    s = torch.from_numpy(clf.transform(X[:5]))
    # The prediction is what the network says, as it was trained: no prior is taken off or put on.
    says = torch.softmax(clf.head_.head(s), dim=1).detach().numpy()
    np.testing.assert_allclose(clf.predict_proba(X[:5]), says, atol=1e-12)
    np.testing.assert_allclose(clf.demixer_.inverse(s).detach(), X[:5], atol=1e-4)


def test_constant_columns_are_no_sources_and_come_back(table):
    X, y = table
    X = np.column_stack([X[:, 0], np.full(len(X), 7.0), X[:, 1:]])
    clf = quick(ECRTClassifier.paper("mnist", encoder="identity", random_state=0)).fit(X, y)
    assert clf.transform(X).shape == (len(X), 3)
    drawn, _ = clf.sample(2, space="feature", random_state=0)
    np.testing.assert_array_equal(drawn[:, 1], 7.0)


def test_the_trained_priors_are_kept_and_sampled_from(table, tmp_path):
    X, y = table
    clf = quick(ECRTClassifier.paper("mnist", encoder="identity", random_state=0), demixing__epochs=8).fit(X, y)
    prior = clf.demixer_.prior
    assert clf.demixed_on_.tolist() == [0, 1, 2, 3]
    s = clf.transform(X)
    moments = np.stack([s[y == k].mean(axis=0) for k in range(5)])
    gap = np.abs(prior.mean_md.detach().numpy() - moments).max(axis=1)
    assert gap[:4].min() > 1e-4  # learned with the flow, so that they are near the moments and not the same
    assert gap[4] < 1e-9  # took no part
    clf.save(tmp_path / "model")
    for model in (clf, load(tmp_path / "model")):
        drawn, labels = model.sample(4000, random_state=0)
        for k in range(4):
            mine = drawn[labels == k]
            spread = prior.variance_md[k].sqrt().detach().numpy()
            np.testing.assert_allclose(mine.mean(axis=0), prior.mean_md[k].detach(), atol=0.07 * spread.max())
            np.testing.assert_allclose(mine.std(axis=0), spread, rtol=0.06)


@pytest.mark.parametrize("linear_first", [False, True])
def test_priors_start_at_the_standard_gaussian_or_at_moments_of_whitened_features(table, linear_first):
    X, y = table
    clf = quick(ECRTClassifier.paper("mnist", encoder="identity", random_state=0), demixing__linear_first=linear_first)
    clf.set_params(demixing__learning_rate=1e-12).fit(X, y)
    prior = clf.demixer_.prior
    from_standard = prior.mean_md[:4].abs().max() < 1e-4 and (prior.variance_md[:4] - 1).abs().max() < 2e-3
    assert from_standard == (not linear_first)


@pytest.mark.parametrize(
    "demixing", ["auto", "linear", NoDemixing(), Flow(source_prior="shared"), [Flow(), Flow(source_prior="shared")]]
)
def test_there_must_be_trained_priors_to_sample_from(table, demixing):
    with pytest.raises(InputError, match="would have no effect: it needs a demixing by Flow"):
        ECRTClassifier(demixing=demixing, augmentation=Parametric(source="prior")).fit(*table)


@pytest.mark.parametrize("estimator", [ECRTClassifier, ECRTRegressor])
def test_unknown_data_sets_and_options_are_refused(estimator):
    with pytest.raises(InputError, match="The supplement has no data set 'imagenet'"):
        estimator.paper("imagenet")
    with pytest.raises(TypeError):
        estimator.paper(likelihood=1.0)
    assert estimator.paper(random_state=3).random_state == 3
    assert set(TABLES) == set(SUPPLEMENT)


def test_numbers_are_learned_by_the_squared_loss():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(260, 4))
    y = np.exp(X[:, 0])
    reg = quick(ECRTRegressor.paper("mnist", random_state=0), encoder__epochs=30, encoder__learning_rate=1e-2)
    reg.fit(X, y)
    encoder, z = reg.history_["encoder"], reg._features(X)
    assert encoder.train_loss[-1] < 0.2 < encoder.train_loss[0]  # in units of the variance: no loss of bins is so small
    line = np.column_stack([z, np.ones(len(z))])
    assert np.corrcoef(line @ np.linalg.lstsq(line, y, rcond=None)[0], y)[0, 1] > 0.8
    assert (reg.loss_, reg.augmentation_, reg.weighted_) == ("squared", "donors", False)
    with pytest.raises(InputError, match="Numbers are learned by an encoder with one of the losses"):
        ECRTRegressor(encoder=Encoder(loss="cross-entropy")).fit(X, y)


def test_rows_of_the_encoder_are_used_again_and_never_judge(table):
    X, y = table
    for reused, n in ((True, len(y)), (False, None)):
        clf = ECRTClassifier(
            encoder=Encoder(epochs=2, n_features=3, reuse_rows=reused), demixing="linear", head="linear", random_state=0
        ).fit(X, y)
        assert (len(clf._examples[0]) == n) == reused


def test_the_command_changes_the_preset_and_does_not_replace_it():
    from ecrt.runs.config import read_config

    overrides = ["demixing.signal_weights=true", "head=linear", "encoder.epochs=3"]
    config = read_config(None, overrides, preset="paper:mnist", task="classification")
    clf = config.make(ECRTClassifier, config.model)
    wanted = ECRTClassifier.paper("mnist").set_params(demixing__signal_weights=True, encoder__epochs=3, head="linear")
    assert clf.get_params(deep=False) == wanted.get_params(deep=False)
    assert config.prior == "training"
    with pytest.raises(InputError, match="preset='papers'"):
        read_config(None, [], preset="papers")
    with pytest.raises(InputError, match="demixing: Flow has no option 'blokcs'"):
        read_config(None, ["demixing.blokcs=2"], preset="paper")


# --- fresh draws ------------------------------------------------------------------------------------------------------


def drawn_inputs(monkeypatch, clf, X, y) -> list[np.ndarray]:
    """What heads saw at every step in the places of synthetic rows."""
    from ecrt.stages.heads import HeadSample

    seen, inputs = [], HeadSample.inputs

    def spy(self, rows):
        found = inputs(self, rows)
        seen.append(found[self.synthetic[rows]].numpy().copy())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(HeadSample, "inputs", spy)
        clf.fit(X, y)
    return seen


@pytest.mark.parametrize("augmentation", ["parametric", "permutation", "borrowed", "kernel", "pairs"])
def test_an_mlp_sees_other_synthetic_sources_at_every_step_and_the_same_under_the_same_seed(
    table, monkeypatch, augmentation
):
    X, y = table
    clf = ECRTClassifier(
        demixing="linear", head=MLPHead(epochs=3, batch_size=64), augmentation=augmentation, random_state=0
    )
    first, again = (drawn_inputs(monkeypatch, clf, X, y) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    rows = np.concatenate(first)
    assert len(rows) > 100
    # Drawn once for each of the fits, they would be about 200; there is no end of Gaussian ones.
    assert len(np.unique(rows, axis=0)) > (0.95 * len(rows) if augmentation == "parametric" else 300)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="steps are recorded on a GPU alone")
@pytest.mark.parametrize("preset", [False, True])
def test_steps_recorded_on_a_gpu_draw_anew_too_and_the_same_under_the_same_seed(table, monkeypatch, preset):
    X, y = table
    clf = ECRTClassifier(demixing="linear", head=MLPHead(epochs=20, batch_size=64), augmentation="parametric")
    if preset:
        clf = ECRTClassifier.paper("mnist").set_params(encoder__epochs=3, demixing__epochs=3)
        clf.set_params(head__epochs=20, head__batch_size=64)
    clf.set_params(random_state=0, device="cuda")
    draw, kept = Parametric.draw, torch.zeros(100_000, device="cuda")
    place = torch.zeros(1, dtype=torch.int64, device="cuda")

    def spy(self, sources, y_b, generator):
        drawn = draw(self, sources, y_b, generator)
        if drawn.is_cuda:  # on the device alone, so that it is recorded and replayed with the step
            kept.index_copy_(0, place, drawn[0, :1].float())
            place.add_(1)
        return drawn

    monkeypatch.setattr(Parametric, "draw", spy)
    found = []
    for _ in range(2):
        place.zero_()
        found.append((clf.fit(X, y).predict_proba(X), kept[: int(place)].cpu().numpy().copy()))
    (probabilities, first), (again, second) = found
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(probabilities, again)
    assert len(first) > 60
    assert len(np.unique(first)) > 0.95 * len(first)


def test_donors_are_drawn_anew_too(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.exp(X[:, 0])
    reg = ECRTRegressor(demixing="linear", head=MLPHead(epochs=2), augmentation="donors", random_state=0)
    rows = np.concatenate(drawn_inputs(monkeypatch, reg, X, y))
    assert len(np.unique(rows, axis=0)) > 0.9 * len(rows) > 90


# --- Eq. 3 and Algorithm 1 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighting", ["share", "added", "replaced"])
@pytest.mark.parametrize("class_mass", ["training", "balanced"])
def test_weights_of_rows_are_the_terms_of_the_risk(weighting, class_mass):
    """A plain loop over the classes, each with its own share."""
    from ecrt.data import assign_roles
    from ecrt.stages import ClassTarget, Synthetic

    counts, strength = np.array([60, 30, 6, 3]), 0.08
    y = np.repeat(np.arange(4), counts)
    roles = assign_roles(counts, np.arange(4), minority=[2, 3], demix_on="all", encode_on="all")
    how = Parametric(weight=strength, weighting=weighting)
    target = ClassTarget(y, roles, how, np.random.default_rng(0), torch.device("cpu"))
    head = MLPHead(class_mass=class_mass)
    synthetic = Synthetic(np.zeros((25, 1)), np.repeat([2, 3], [10, 15]))
    labels, weights = (values.numpy() for values in target.learned(np.arange(len(y)), synthetic, head))
    terms = {}
    for label, n in enumerate(counts):
        mass, rare = (n / 99 if class_mass == "training" else 1 / 4), label >= 2
        moved = {"share": strength * mass, "added": strength, "replaced": min(strength, mass)}[weighting] * rare
        terms[label] = mass - (0 if weighting == "added" else moved), moved
    whole = sum(real + drawn for real, drawn in terms.values())
    real = np.arange(len(labels)) < len(y)
    for label, (mine, drawn) in terms.items():
        assert weights[real & (labels == label)].sum() == pytest.approx(mine / whole)
        assert weights[~real & (labels == label)].sum() == pytest.approx(drawn / whole)
    # What is left in the logits is what the rows weighed.
    expected = np.array([sum(terms[label]) for label in range(4)]) / whole
    np.testing.assert_allclose(target.prior_left_by(MLPHead(class_mass=class_mass, loss="cross-entropy")), expected)


@pytest.mark.parametrize("weighting", ["share", "added", "replaced"])
def test_positives_of_labels_weigh_what_the_risk_says(weighting):
    from scipy import sparse

    from ecrt.data import assign_roles
    from ecrt.stages import Labelled, LabelTarget, Synthetic

    rng = np.random.default_rng(0)
    present = (rng.random((80, 3)) < [0.5, 0.4, 0.05]).astype(np.int8)
    labelled = Labelled(sparse.csr_array(present))
    roles = assign_roles(labelled.counts, np.arange(3), minority=[2], demix_on="all", encode_on="all")
    how = Parametric(weight=0.03, weighting=weighting)
    target = LabelTarget(labelled, roles, how, rng, torch.device("cpu"))
    codes, weights = target.learned(np.arange(80), Synthetic(np.zeros((7, 1)), np.full(7, 2)), MLPHead())
    logits = torch.from_numpy(rng.normal(size=(87, 3)))
    found = (target.loss_of(MLPHead(loss="cross-entropy"))(logits, codes) * weights).sum()
    frequency = labelled.counts[2] / 80
    drawn = {"share": 0.03 * frequency, "added": 0.03, "replaced": min(0.03, frequency)}[weighting]
    kept = 1.0 if weighting == "added" else 1 - drawn / frequency
    expected = 0.0
    for row in range(87):
        for label in range(3):
            loss = nn.functional.softplus(
                -logits[row, label] if row >= 80 or present[row, label] else logits[row, label]
            )
            if row >= 80:
                expected += drawn / 7 * loss * (label == 2)
            else:
                expected += loss / 80 * (kept if label == 2 and present[row, label] else 1.0)
    torch.testing.assert_close(found, expected)
