"""A diagnosis end to end on small data: what it says, its page, its file, and the command."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ecrt
from ecrt import ECRTClassifier, Encoder, InputError, Linear, Parametric, cli
from ecrt.data import rare_feature_data
from ecrt.diagnostics import MinorityGap
from ecrt.report import diagnosis_table, recommendation_text, write_page
from ecrt.report.pages import page_of
from ecrt.runs import Diagnosis
from ecrt.runs.config import read_classes
from ecrt.runs.diagnosis import best_transfer_options
from pages import Outline
from test_model_page import browser  # noqa: F401

ATTACK = "</script><img src=x onerror=alert(1)>"
QUESTIONS = [
    "transfer", "theory", "dependence", "gaussianity", "stability", "memorisation", "unique feature",
    "features or sources",
]  # fmt: skip
SMALL: dict[str, Any] = {
    "n_majority": 8, "n_minority": 3, "majority_rows": 26, "minority_rows": 12, "n_features": 8, "n_signal": 4
}  # fmt: skip


def small_data(*, unique: bool = True, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    data = rare_feature_data(unique=unique, rng=np.random.default_rng(seed), **SMALL)
    names = np.array([f"kind {label}" for label in range(10)] + [ATTACK])
    return data.z, names[data.y]


def quick(X: Any, y: Any, **options: Any) -> Diagnosis:
    clf = ECRTClassifier(
        demixing=Linear(pseudo_samples=9.0, n_sources=3, rotation="discriminant"),
        augmentation=Parametric(pseudo_samples=9.0),
        head="gaussian",
    )
    return ecrt.diagnose(X, y, **{"estimator": clf, "trials": 8, "refits": 2} | options)


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    X, y = small_data()
    seen = np.arange(len(y)) % 3 > 0
    return quick(pd.DataFrame(X, columns=list("abcdefgh")), y, seen=seen, title=f"small {ATTACK}")


def test_every_question_has_an_answer(found):
    assert list(found.findings) == QUESTIONS
    assert [row[1].text for row in diagnosis_table(found).rows] == [one.answer for one in found.findings.values()]
    assert all(row[0].text.endswith("?") for row in diagnosis_table(found).rows)
    assert found.findings["unique feature"].answer == "no"
    assert found.features == tuple("abcdefgh")
    assert found.minority.sum() == 3
    assert found.findings["memorisation"].answer == "yes"  # the marks mean nothing here


def sections(text: str) -> dict[str, str]:
    """What the page says of each question."""
    found = re.findall(r'<section id="([a-z-]+)">(.*?)</section>', text, re.DOTALL)
    return {name: " ".join(Outline(section).text.split()) for name, section in found}


def altered(found: Diagnosis) -> list[Diagnosis]:
    """The same with answers that these data do not give."""
    gap = MinorityGap(gain=-1, low=-2, high=-0.5, loss_z=1, loss_s=2, n_classes=3, n_rows=9, over="classes")
    dependent = found.dependence.assign(p_s=0.001)
    return [
        found,
        replace(found, gap=gap, augmentation="permutation", stability=(0.5, 0.6)),
        replace(found, dependence=dependent, n_demixed=2,
                theory=replace(found.theory, enough_classes=False)),
        replace(found, theory=replace(found.theory, smallest_singular_value=0.0)),
        replace(found, gaussianity=replace(found.gaussianity, sources=found.gaussianity.sources[:0], n_rows=0),
                stability=()),
    ]  # fmt: skip


@pytest.mark.parametrize("which", range(5))
def test_the_page_tells_every_answer_and_a_no_that_matters_says_what_to_do(found, which):
    changed = altered(found)[which]
    said = sections(page_of(changed)[0])
    for name, finding in changed.findings.items():
        section = said[name.replace(" ", "-")]
        assert section.partition("? ")[2].startswith(finding.answer)
        assert len(section) > 200
        if finding.answer == "no" and not finding.harmless:
            assert "What to do." in section, name


def test_the_same_seed_gives_the_same_file(found, tmp_path):
    X, y = small_data()
    again = quick(pd.DataFrame(X, columns=list("abcdefgh")), y, seen=np.arange(len(y)) % 3 > 0, title=f"small {ATTACK}")
    first, second = found.write(tmp_path / "first"), again.write(tmp_path / "second")
    assert first.read_text() == second.read_text()
    stored = json.loads(first.read_text())
    assert stored["transfer"] == found.selection.transfer
    assert stored["findings"]["theory"]["answer"] == found.findings["theory"].answer
    assert "seconds" not in first.read_text()


@pytest.mark.parametrize(
    ("change", "gap", "code", "says"),
    [
        ({"transfer": True, "vetoed": False, "low": 0.1}, 0.2, "use with care", "vary where"),
        ({"transfer": True, "vetoed": False, "low": 0.1}, -0.2, "do not use", "are predicted worse"),
        ({"transfer": False, "vetoed": True, "low": 0.1}, -0.2, "do not use", "are predicted worse"),
        ({"transfer": False, "vetoed": False, "low": -0.1, "high": 0.1}, 0.2, "do not use", "beyond noise"),
        ({"transfer": False, "vetoed": False, "low": -0.2, "high": -0.1}, 0.2, "do not use", "is worse"),
    ],
)
def test_the_recommendation_follows_from_the_evidence(found, change, gap, code, says):
    measured = MinorityGap(
        gain=gap, low=gap - 0.1, high=gap + 0.1, loss_z=1.0, loss_s=1 - gap, n_classes=3, n_rows=9, over="classes"
    )
    changed = replace(found, selection=replace(found.selection, **change), gap=measured)
    assert changed.recommendation == code
    said = recommendation_text(changed)
    assert said.startswith("Use ECRT here with care: " if code == "use with care" else "Do not use ECRT here: ")
    assert says in said


def test_without_a_unique_feature_transfer_is_recommended_plainly(found):
    selection = replace(found.selection, transfer=True, vetoed=False, gain=0.2, low=0.1, high=0.3)
    changed = replace(found, selection=selection, unique=None, gap=None)
    assert changed.recommendation == "use"
    assert recommendation_text(changed).startswith("Use ECRT here: it beats plain logit adjustment beyond noise.")
    assert "+0.200" in recommendation_text(changed)
    assert changed.findings["unique feature"].answer == "cannot tell"


def test_the_transfer_that_is_examined_is_the_one_settled_on(found):
    tried = [
        {"options": {"demixing": "none"}, "loss": 0.1, "fits": 6},
        {"options": {"demixing": "linear", "head": "mlp"}, "loss": 0.2, "fits": 2},
        {"options": {"demixing": "linear"}, "loss": 0.3, "fits": 6},
    ]
    refused = replace(found.selection, transfer=False, options={"demixing": "none"}, tried=tried)
    assert best_transfer_options(refused) == {"demixing": "linear"}
    assert best_transfer_options(replace(refused, tried=tried[:1])) == {"demixing": "linear"}


# --- the page -----------------------------------------------------------------------------------------------------


def test_the_page_holds_every_question_and_loads_nothing(found):
    text = page_of(found)[0]
    outline = Outline(text)
    assert outline.open == []
    assert len(set(outline.ids)) == len(outline.ids)
    assert {name.replace(" ", "-") for name in QUESTIONS} <= set(outline.ids)
    assert all(link.startswith("#") for link in outline.loads)
    assert outline.handlers == []
    assert "<img src=x" not in text
    assert recommendation_text(found) in " ".join(outline.text.split())
    assert outline.count["figure"] == 4  # what a number or an interval says needs none


def test_a_page_without_answers_stands_too(found):
    bare = replace(found, unique=None, gap=None, memorisation=None, memorisation_of="unknown", title="")
    outline = Outline(page_of(bare)[0])
    assert outline.text.count("cannot tell") >= 6  # three questions, in the table and in their sections
    assert outline.count["figure"] == 2


def test_the_page_opens_without_complaints_and_fits_a_phone(found, tmp_path, browser):  # noqa: F811
    browser.get_log("browser")
    browser.get(write_page(found, tmp_path).as_uri())
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


# --- input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (np.ones(244), "the same value for all rows"),
        (np.arange(244), "holds 2"),
        (np.ones(3), "244 rows"),
        (np.array(["yes"] * 244), "0 and 1"),
    ],
)
def test_marks_of_seen_rows_are_checked(seen, message):
    X, y = small_data()
    with pytest.raises(InputError, match=message):
        quick(X, y, seen=seen)


def test_lengths_are_checked():
    X, y = small_data()
    with pytest.raises(InputError, match="244 rows, y has 243"):
        quick(X, y[1:])


def test_two_classes_are_diagnosed_too():
    rng = np.random.default_rng(0)
    y = np.repeat(["common", "rare"], [150, 20])
    X = rng.standard_normal((170, 3)) + (y == "rare")[:, None]
    result = quick(X, y, estimator=ECRTClassifier(head="gaussian"))
    assert result.selection.by == "cross-validation"
    assert result.unique is not None
    assert result.unique.by == "rows"
    assert result.findings["theory"].answer == "no"
    assert result.recommendation in ("use", "use with care", "do not use")


def test_an_encoder_trained_here_is_examined():
    X, y = small_data()
    clf = ECRTClassifier(
        encoder=Encoder("mlp", epochs=3, n_features=6),
        demixing=Linear(n_sources=3),
        head="gaussian",
        device="cpu",
    )
    result = quick(X, y, estimator=clf, trials=6)
    assert result.memorisation is not None
    assert "four fifths of the rows" in sections(page_of(result)[0])["memorisation"]
    assert result.features == ()  # features of an encoder are no columns


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_writes_page_and_file(tmp_path, monkeypatch, found):
    """The command itself, with the diagnosis of the fixture in place of one that takes its time."""
    X, y = small_data()
    file = tmp_path / "data.csv"
    pd.DataFrame(X).assign(label=y, used=(np.arange(len(y)) % 2)).to_csv(file, index=False)
    asked: dict[str, Any] = {}

    def take_note(X: Any, y: Any, **options: Any) -> Diagnosis:
        asked.update(options, columns=list(X.columns), n=len(y))
        return found

    monkeypatch.setattr("ecrt.runs.diagnose", take_note)
    result = CliRunner().invoke(
        cli.app,
        ["diagnose", str(file), "--target", "label", "--seen", "used", "--seed", "3", "-o", str(tmp_path / "out")],
    )
    assert result.exit_code == 0, result.output
    assert asked["columns"] == [str(place) for place in range(8)]  # neither the target nor the marks
    assert asked["random_state"] == 3
    assert asked["seen"].sum() == len(y) // 2
    assert recommendation_text(found) in result.output
    method = " --method logit-adjusted" if found.recommendation == "do not use" else ""
    following = f"ecrt fit {file} --target label{method} --drop used"
    assert f"Next: {following}" in result.output.replace("\n", "")
    assert following in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "report.html").is_file()
    assert json.loads((tmp_path / "out" / "diagnosis.json").read_text())["rows"] == len(y)


def test_the_command_teaches(tmp_path):
    file = tmp_path / "data.csv"
    pd.DataFrame({"a": [1.0, 2.0], "label": ["x", "y"]}).to_csv(file, index=False)
    result = CliRunner().invoke(cli.app, ["diagnose", str(file)])
    assert result.exit_code == 1
    assert "--target COL" in result.output
    with pytest.raises(InputError, match="is a folder"):
        read_classes(tmp_path, "label")
    with pytest.raises(InputError, match="--seen"):
        read_classes(tmp_path / "x.npz", "y", aside=("used",))


# --- what it must show --------------------------------------------------------------------------------------------
