"""Parts as options: counted, documented, checked, nested, cloned, shown, saved and written in files, all in one way."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.utils._param_validation import make_constraint
from torch import nn

import ecrt
from ecrt import (
    BaselineClassifier,
    ECRTClassifier,
    ECRTRegressor,
    ECRTTransformer,
    Encoder,
    Flow,
    InputError,
    Linear,
    LinearHead,
    MLPHead,
    Parametric,
    Permutation,
    PseudoMinority,
)
from ecrt.rivals import Rival
from ecrt.runs.config import read_config
from ecrt.stages import Part
from ecrt.stages.parts import Composed
from options_walk import PARTS, data

ESTIMATORS = (ECRTClassifier, ECRTRegressor, ECRTTransformer)
KINDS = [*ESTIMATORS, BaselineClassifier, *PARTS]
BY_NAME = {kind.__name__: kind for kind in KINDS}
ROLES = {(kind, name): role for kind in (*ESTIMATORS, BaselineClassifier) for name, role in kind._roles.items()}


@pytest.mark.parametrize("kind", [*ESTIMATORS, BaselineClassifier])
def test_an_estimator_has_at_most_16_options(kind):
    assert len(kind().get_params(deep=False)) <= 16


def test_all_parts_are_public_and_walked():
    classes = {part for role in ROLES.values() for part in role.classes}
    rivals = {part for part in PARTS if issubclass(part, Rival)}
    assert classes | rivals == set(PARTS)
    assert all(getattr(ecrt, part.__name__) is part for part in classes)
    assert all(getattr(ecrt.rivals, part.__name__) is part for part in rivals)


# --- each option is declared once: its default, its allowed values, its documentation ----------------------------


def documentation(kind):
    """What the docstring says of each option: its default as a value, and the class that it is described with.

    ``width : int, default=64`` has a default; ``width, depth : default=64 and 2`` has one for each name. Without
    a default, the description must be "As in" another class.
    """
    section = inspect.getdoc(kind).partition("\nParameters\n----------\n")[2].partition("\n\n")[0]
    found = {}
    for names, kinds, body in re.findall(r"^(\w[\w, ]*?)(?: : (.*))?\n((?:    .*\n?)+)", section, flags=re.M):
        names = names.split(", ")
        stated = re.search(r"default=(.*)$", kinds)
        values = [] if stated is None else [stated[1]] if len(names) == 1 else re.split(r", | and ", stated[1])
        other = re.search(r"\b[Aa]s in ``(\w+)``", body)
        assert len(values) == len(names) or (not values and other), (kind, names)
        for place, name in enumerate(names):
            assert name not in found, (kind, name)
            found[name] = ([ast.literal_eval(values[place])] if values else []), other and other[1]
    return found


def allowed(kind, name):
    """The allowed values of an option, in words."""
    words = [str(make_constraint(one)) for one in kind._parameter_constraints[name]]
    return sorted(re.sub(r"\{.*\}", lambda names: str(sorted(names[0][1:-1].split(", "))), one) for one in words)


def test_allowed_values_are_those_of_the_type():
    declared = {kind for one in KINDS for kind in one.__mro__ if "_parameter_constraints" in vars(kind)}
    assert declared <= {Composed, *BaseEstimator.__mro__}
    for kind in KINDS:
        for name, constraints in kind._parameter_constraints.items():
            # A plain int or float would refuse NumPy's numbers, and take any.
            assert constraints, (kind, name)
            assert not {int, float, Any} & {one for one in constraints if isinstance(one, type)}, (kind, name)


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_is_documented_once_with_its_default(kind):
    defaults, documented = kind().get_params(deep=False), documentation(kind)
    assert set(documented) == set(defaults) == set(kind._parameter_constraints)
    for name, (stated, other) in documented.items():
        if stated:
            assert stated == [defaults[name]], name
        else:
            assert documentation(BY_NAME[other])[name][0] == [defaults[name]], (name, other)
            assert allowed(kind, name) == allowed(BY_NAME[other], name), (name, other)


@pytest.mark.parametrize(("kind", "name"), ROLES)
def test_an_option_has_one_default_and_the_same_allowed_values_in_all_parts_of_a_role(kind, name):
    same_in_family(ROLES[kind, name].classes)


def test_an_option_has_one_default_and_the_same_allowed_values_in_all_estimators():
    same_in_family(ESTIMATORS)


def same_in_family(family):
    for name in {name for kind in family for name in kind().get_params(deep=False)} - {"demixing", "augmentation"}:
        having = [kind for kind in family if name in kind().get_params(deep=False)]
        assert len({repr(getattr(kind(), name)) for kind in having}) == 1, name
        if not any(name in kind._roles for kind in having):
            assert len({repr(allowed(kind, name)) for kind in having}) == 1, name


@pytest.mark.parametrize("kind", PARTS)
def test_defaults_pass_their_own_check(kind):
    kind().check()


@pytest.mark.parametrize(("kind", "name"), ROLES)
def test_short_names_are_parts_with_all_defaults(kind, name):
    role = ROLES[kind, name]
    for short in role.names - set(role.others):
        part = role.part(short, name)
        assert isinstance(part, role.open_to or role.classes)
        part.check()
        assert role.from_plain({"kind": part.kind, **part.get_params(deep=False)}, name) == part
    for other in role.others:
        with pytest.raises(InputError, match=f"{name}='{other}' has no options: choose one of"):
            role.part(other, name)
    with pytest.raises(InputError, match="use one of"):
        role.part("no such part", name)


def test_nested_options_make_a_part_of_a_short_name():
    clf = ECRTClassifier(demixing="flow").set_params(demixing__objective="gcl", augmentation__weight=0.3)
    assert clf.demixing == Flow(objective="gcl")
    assert clf.augmentation == Parametric(weight=0.3)
    clf.set_params(demixing="linear", demixing__n_sources=2)
    assert clf.demixing == Linear(n_sources=2)
    assert clf.get_params()["demixing__n_sources"] == 2
    with pytest.raises(InputError, match="demixing='auto' has no options"):
        ECRTClassifier().set_params(demixing__objective="gcl")
    with pytest.raises(ValueError, match="objectiv"):
        ECRTClassifier(demixing="flow").set_params(demixing__objectiv="gcl")


def test_clone_copies_parts_and_repr_shows_what_was_set():
    clf = ECRTClassifier(demixing=Flow(blocks=4), head=[LinearHead(loss="ldam"), "gaussian"])
    copy = clone(clf)
    assert copy.demixing == clf.demixing
    assert copy.demixing is not clf.demixing
    copy.set_params(demixing__blocks=2)
    assert clf.demixing.blocks == 4
    assert (
        repr(clf)
        == "ECRTClassifier(demixing=Flow(blocks=4),\n               head=[LinearHead(loss='ldam'), 'gaussian'])"
    )


def test_grid_search_over_nested_names():
    X, y = data("", ECRTClassifier)
    grid = {"demixing__n_sources": [1, 4], "head__weight_decay": [1e-3]}
    search = GridSearchCV(ECRTClassifier(demixing="linear", head="linear", random_state=0), grid, cv=2).fit(X, y)
    assert search.best_params_ == {"demixing__n_sources": 4, "head__weight_decay": 1e-3}
    assert search.best_estimator_.parts_["demixing"] == Linear(n_sources=4)


def test_parts_are_kept_in_files(tmp_path):
    X, y = data("", ECRTClassifier)
    clf = ECRTClassifier(
        encoder=Encoder("mlp", epochs=1, n_features=3), demixing=["none", Linear(n_sources=2)],
        head=[LinearHead(weight_decay=1e-2), MLPHead(epochs=2, hidden=(4,))], augmentation=Parametric(weight=0.2),
        random_state=0,
    ).fit(X, y)  # fmt: skip
    clf.save(tmp_path)
    loaded = ecrt.load(tmp_path)
    assert loaded.get_params() == clf.get_params()
    assert loaded.parts_ == clf.parts_
    assert clf.parts_["encoder"] == Encoder("mlp", epochs=1, n_features=3)


@pytest.mark.parametrize("option", ["demixing", "head"])
def test_auto_cannot_be_one_of_several(option):
    X, y = data("", ECRTClassifier)
    with pytest.raises(InputError, match=f"{option}=.*'auto' cannot be one of several"):
        ECRTClassifier(**{option: ["auto", "linear"]}).fit(X, y)


@pytest.mark.parametrize(
    ("overrides", "option", "expected"),
    [
        (["demixing.objective=gcl"], "demixing", Flow(objective="gcl")),
        (["model.demixing=flow", "demixing.blocks=[1, 2]"], "demixing", Flow(blocks=[1, 2])),
        (["encoder=mlp", "encoder.epochs=3"], "encoder", Encoder("mlp", epochs=3)),
        (["head=[linear, {kind: mlp, epochs: 5}]"], "head", ["linear", MLPHead(epochs=5)]),
        (["selection.trials=4"], "selection", PseudoMinority(trials=4)),
        (["augmentation.weight=0.3"], "augmentation", Parametric(weight=0.3)),  # the default has that option
        (["augmentation.kind=permutation", "augmentation.weight=0.3"], "augmentation", Permutation(weight=0.3)),
    ],
)
def test_settings_of_the_command_line_become_parts(overrides, option, expected):
    config = read_config(None, overrides)
    assert ECRTClassifier._from_plain_options(config.model).get_params()[option] == expected
    assert read_config(None, overrides) == config


def test_a_module_is_a_part_of_the_encoder():
    module = nn.Linear(4, 3)
    assert ECRTClassifier(encoder=module)._encoder.network is module


def test_a_part_refuses_values_and_says_whose_option_it_is():
    with pytest.raises(InputError, match="'objective' parameter of Flow must be"):
        Flow(objective="no").check()
    X, y = data("", ECRTClassifier)
    with pytest.raises(InputError, match="'weight' parameter of Parametric must be"):
        ECRTClassifier(augmentation=Parametric(weight=2)).fit(X, y)


@pytest.mark.filterwarnings("ignore")
def test_a_default_fit_walks_through_at_most_25_files():
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    room = str(Path(ecrt.__file__).parent)
    files: set[str] = set()

    def profile(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(room) and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    clf = ECRTClassifier(random_state=0)
    sys.setprofile(profile)
    try:
        clf.fit(X, y)
    finally:
        sys.setprofile(None)
    assert np.isfinite(clf.predict_proba(X)).all()
    assert len(files) <= 25, sorted(Path(file).relative_to(room).as_posix() for file in files)


def test_parts_compare_by_their_options():
    assert Flow() == Flow()
    assert Flow(blocks=2) != Flow()
    assert Flow() != Linear()
    assert issubclass(Flow, Part)
