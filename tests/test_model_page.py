"""The report page of a fitted model: what it says, and, in headless Chromium, what it does when clicked."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecrt.metrics import class_scores, group_recalls, prediction_metrics, single_numbers
from ecrt.report.classes import confusion_panels, summarise_classes
from ecrt.report.drawing import svg
from ecrt.report.pages import page_of, write_page
from ecrt.runs.evaluation import Evaluation
from ecrt.runs.findings import chance_correlation, source_findings
from ecrt.stages import Restart
from ecrt.training import History
from pages import Outline

ATTACK = "</script><img src=x onerror=alert(1)>"
LONG = "a very long label that goes on and on without an end in sight"
TRAINED = History(np.linspace(1, 0.2, 9).tolist(), np.linspace(1, 0.4, 9).tolist(), best_epoch=6)
LABELS = ["cat", '$x_1$ & "co" \'', ATTACK, "稀有", LONG, "7"]
SECTIONS = [
    "summary", "metrics-section", "classes", "confusion", "calibration", "sources-section", "training", "diagnostics"
]  # fmt: skip


def made(labels: list[str], n_rows: int = 240, *, seed: int = 0, **changes: Any) -> Evaluation:
    """An evaluation as a model might leave it, without fitting one: later classes are rarer and often missed."""
    rng, n = np.random.default_rng(seed), len(labels)
    counts = np.maximum(400 * 0.02 ** (np.arange(n) / max(n - 1, 1)), 2).astype(np.int64)
    y = rng.integers(0, n, n_rows)
    y[:n] = np.arange(n)
    scores = rng.normal(size=(n_rows, n))
    scores[np.arange(n_rows), y] += 2.5 - 1.5 * y / n
    log_proba = {
        "balanced": scores - np.logaddexp.reduce(scores, axis=1, keepdims=True),
        "training": (shifted := scores + np.log(counts)) - np.logaddexp.reduce(shifted, axis=1, keepdims=True),
        "guessing": np.broadcast_to(np.log(counts / counts.sum()), scores.shape),
    }
    predicted = {prior: log_proba[prior].argmax(axis=1) for prior in ("balanced", "training")}
    minority = np.arange(n) >= max(n - 2, 1)
    drawn = np.flatnonzero(minority)[:2]
    arrays = {
        "y": y, "labels": np.array(labels, dtype=np.str_), "counts": counts, "minority": minority,
        "demixed_on": ~minority, "n_examples": counts, "max_correlation": np.full(n, 0.05), "hsic": np.full(n, 0.02),
        "log_likelihood": np.full(n, -3.0), "real": rng.normal(size=(n_rows, 2)), "real_y": y,
        "sources": np.array([2, 0]), "synthetic": rng.normal(size=(30 * len(drawn), 2)),
        "synthetic_y": np.repeat(drawn, 30),
    }  # fmt: skip
    for prior, values in predicted.items():
        arrays |= {f"predicted.{prior}": values, f"confidence.{prior}": np.exp(log_proba[prior].max(axis=1))}
    found = Evaluation(
        task="classification",
        title="Made up",
        facts={
            "demixing": "flow", "head": "linear",
            "tried": {
                "none, linear": {"loss": 0.9, "weight": 0.75}, "linear, linear": {"loss": 0.8, "weight": 0.0},
                "linear, gaussian": {"loss": 1.0, "weight": 0.0}, "flow, linear": {"loss": 0.7, "weight": 0.6},
            },
            "n_sources": 3, "augmentation": "parametric", "augmentation_weight": 0.5, "class_prior": "balanced",
            "round_trip_error": 1e-6, "enough_classes": True, "smallest_singular_value": 0.4, "versions": {"ecrt": "1"},
        },
        training={"encoder": TRAINED, "restarts": [Restart(1, 0.4, TRAINED), Restart(1, 0.5, TRAINED)]},
        metrics={
            name: single_numbers(prediction_metrics(values, y, counts, prior="balanced"))  # as they are
            for name, values in log_proba.items()
        },
        groups={
            prior: group_recalls(class_scores(y, values, len(counts))["recall"], counts)
            for prior, values in predicted.items()
        },
        arrays=arrays,
    )  # fmt: skip
    return replace(found, **changes)


def render(evaluation: Evaluation) -> str:
    return page_of(evaluation)[0]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures cost time, and not every test looks at them."""
    for module in ("drawing", "classes"):
        monkeypatch.setattr(f"ecrt.report.{module}.svg", lambda *_, **__: "<svg></svg>")


@pytest.fixture(scope="module")
def awkward() -> Evaluation:
    return made(LABELS, title="<i>Awkward</i> & Co", unknown_labels={f"new {ATTACK}": 3})


@pytest.fixture(scope="module")
def page(awkward: Evaluation) -> str:
    return render(awkward)


@pytest.fixture(scope="module")
def many_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    write_page(made([f"species {index:03d}" for index in range(200)], n_rows=2000), folder)
    return folder


# --- what it says -------------------------------------------------------------------------------------------------


def test_every_section_and_both_priors_are_there(page: str) -> None:
    outline = Outline(page)
    assert not outline.open
    assert set(SECTIONS) <= set(outline.ids)
    for anchor in SECTIONS:
        assert f'href="#{anchor}"' in page
    for words in ("Under the balanced prior", "Under the training prior", "Top-5 accuracy", "Calibration error"):
        assert words in outline.text
    assert page.count('class="under-balanced') == page.count('class="under-training') >= 3


def test_every_figure_has_a_sentence_and_labelled_axes(page: str) -> None:
    figures = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
    assert len(figures) == 2 * 3 + 1 + 1
    for figure in figures:
        caption = re.search(r"<figcaption>(.*?)</figcaption>", figure, re.DOTALL)
        assert caption is not None
        assert len(caption[1]) > 100
        for panel in re.findall(r"<svg.*?</svg>", figure, re.DOTALL):
            words = [text for text in re.findall(r"<text[^>]*>([^<]*)</text>", panel) if re.search("[a-z]{4}", text)]
            assert len(words) >= 2, words
    for label in ("training samples of the class (log scale)", "predicted class", "true class", "source 3", "epoch"):
        assert label in page
    assert "confidence: probability of the predicted class" in page


def test_labels_and_titles_are_escaped(page: str) -> None:
    outline = Outline(page)
    assert "<img" not in page
    assert "img" not in outline.count
    assert outline.count["script"] == 1
    assert not outline.handlers
    assert ATTACK in outline.text
    assert "&lt;i&gt;Awkward" in page
    assert '$x_1$ & "co"' in outline.text  # a label, and no formula


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    outline = Outline(page)
    assert all(address.startswith(("#", "data:")) for address in outline.loads)
    assert not {"link", "iframe"} & set(outline.count)
    assert "@import" not in page
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"'<)]+", page)) <= namespaces
    assert "default-src 'none'" in page


def test_ids_are_unique_and_references_resolve(page: str) -> None:
    outline = Outline(page)
    assert len(set(outline.ids)) == len(outline.ids)
    wanted = set(re.findall(r"url\(#([^)]*)\)", page)) | {load[1:] for load in outline.loads if load.startswith("#")}
    assert wanted <= set(outline.ids)


def test_numbers_on_the_page_are_those_of_the_files(awkward: Evaluation, page: str) -> None:
    for prior in ("balanced", "training"):
        for value in awkward.metrics[prior].values():
            assert f">{value:.3f}<" in page
        for value in class_scores(awkward.y, awkward.arrays[f"predicted.{prior}"], len(LABELS))["recall"]:
            assert f">{value:.3f}<" in page


def test_unknown_labels_are_said(page: str) -> None:
    said = " ".join(Outline(page).text.split())
    assert "3 test rows have labels that training never saw: “new " in said
    assert "They count as errors in top1, macro_f1, top5; they are left out of balanced_accuracy, g_mean, nll" in said


@pytest.mark.usefixtures("undrawn")
def test_headline_names_the_weakest_class(awkward: Evaluation, page: str) -> None:
    recall = class_scores(awkward.y, awkward.arrays["predicted.training"], len(LABELS))["recall"]
    weakest = LABELS[int(recall.argmin())][:20]
    (verdict,) = re.findall(r'<div class="verdict under-training">.*?</div>', page, re.DOTALL)
    assert weakest in Outline(verdict).text.partition("Weakest: ")[2].partition(" rows right")[0]
    perfect = made(["a", "b", "c"])
    perfect = replace(
        perfect, arrays=perfect.arrays | dict.fromkeys(("predicted.balanced", "predicted.training"), perfect.y)
    )
    assert render(perfect).count("No test row of a known class is missed.") == 2


def test_the_summary_holds_numbers_and_codes_and_no_sentences(awkward: Evaluation) -> None:
    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for key, entry in value.items():
                yield from texts(entry) if key not in ("title", "subject", "unknown_labels") else ()
        elif isinstance(value, (list, tuple)):
            for entry in value:
                yield from texts(entry)
        elif hasattr(value, "__dataclass_fields__"):
            yield from texts(vars(value))

    found = list(texts(summarise_classes(awkward)))
    assert {"balanced", "training", "numbers", ATTACK} <= set(found)
    assert [text for text in found if re.search(r"\w\. |\w\.$", text)] == []


@pytest.mark.usefixtures("undrawn")
def test_the_prior_of_predict_is_shown_first() -> None:
    evaluation = made(["a", "b", "c"])
    assert 'value="balanced" checked' in render(evaluation)
    trained = replace(evaluation, facts=dict(evaluation.facts, class_prior="training"))
    assert 'value="training" checked' in render(trained)


@pytest.mark.usefixtures("undrawn")
def test_two_classes_have_ranking_metrics() -> None:
    text = Outline(render(made(["sick", "well"]))).text
    assert "Average precision" in text
    assert "ROC AUC" in text
    assert "Top-5" not in text
    assert "Most confused pairs" not in text


def test_many_classes_are_folded_and_small(many_folder: Path) -> None:
    path = many_folder / "report.html"
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 3_000_000
    assert "All 200 classes" in text
    assert text.count('type="search"') == 3
    assert "Most confused pairs" in text
    assert "right, or training samples of the wrong class" in text
    assert ">predicted class</text>" not in text  # no matrix of 200 x 200
    assert not Outline(text).open


@pytest.mark.usefixtures("undrawn")
def test_of_hundreds_of_classes_the_weakest_are_shown() -> None:
    text = render(made([str(index) for index in range(600)], n_rows=1200))
    assert "The 500 weakest of 600 classes" in text
    assert len(text) < 3_000_000


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("n_classes", [12, 13, 30, 31])
def test_confusion_changes_form_with_the_number_of_classes(n_classes: int) -> None:
    text = render(made([f"class {index}" for index in range(n_classes)], n_rows=400))
    (section,) = re.findall(r'<section id="confusion">.*?</section>', text, re.DOTALL)
    assert section.count("<figure") == 2
    assert "Most confused pairs" in section
    assert ('<div class="panels wide"' in section) == (12 < n_classes <= 30)
    assert ("Each line is a true class" in section) == (n_classes <= 30)
    assert ("Classes are grouped by their training samples" in section) == (n_classes > 30)
    assert ("Numbers are test rows" in section) == (n_classes <= 12)
    assert ("The weakest classes" in text) == (n_classes > 30)


@pytest.mark.usefixtures("undrawn")
def test_heads_are_listed_with_their_losses(awkward: Evaluation) -> None:
    (table,) = re.findall(r'<table id="tried".*?</table>', render(awkward), re.DOTALL)
    rows = [" ".join(Outline(row).text.split()) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)]
    assert rows[1:] == [
        "plain logit adjustment0.7500.900", "linear head after linear de-mixing0.0000.800",
        "Gaussian head after linear de-mixing0.0001.000", "linear head after flow de-mixing0.6000.700",
    ]  # fmt: skip


def test_the_matrix_counts_rows_of_known_labels() -> None:
    evaluation = made(["a", "b", "c"], n_rows=50)
    unknown = replace(evaluation, arrays=dict(evaluation.arrays, y=np.where(np.arange(50) < 4, -1, evaluation.y)))
    (panel,) = page_of(unknown)[1]["confusion-balanced"]
    numbers = [int(text) for text in re.findall(r"<text[^>]*>(\d+)</text>", panel)]
    assert sum(numbers) == 46


def test_bands_say_in_per_cent_how_many_rows_are_right_and_who_takes_the_others() -> None:
    evaluation = made([str(index) for index in range(31)], n_rows=400)
    y = np.where(np.arange(400) < 4, -1, np.arange(400) % 31)
    counts = np.where(np.arange(31) < 11, 10, 100)  # rare, frequent
    predicted = np.where(y % 2 == 0, y, 30)  # odd classes are taken for a frequent one
    arrays = dict(evaluation.arrays, y=y, counts=counts) | {"predicted.balanced": predicted}
    (panel,) = confusion_panels(replace(evaluation, arrays=arrays), "balanced")
    shares = [int(text) for text in re.findall(r"<text[^>]*>(\d+)</text>", panel)]
    right = [100 * np.mean(predicted[rows] == y[rows]) for rows in (np.isin(y, range(11)), y >= 11)]
    assert shares == [round(right[0]), 0, round(100 - right[0]), round(right[1]), 0, round(100 - right[1])]
    assert panel.count(">10–10</text>") == panel.count(">100–100</text>") == 2


def test_what_is_missing_is_left_out_or_said() -> None:
    evaluation = made(["a", "b", "c", "d"])
    everyone = np.ones(4, dtype=bool)
    y = np.where(evaluation.y == 3, 0, evaluation.y)
    bare = replace(
        evaluation,
        title="",
        facts=dict(
            evaluation.facts, demixing="linear", tried={"linear, linear": {"loss": 0.9, "weight": 1.0}},
            n_sources=1, class_prior="given",
            augmentation_weight=0.0, round_trip_error=float("nan"), enough_classes=False, smallest_singular_value=0.0,
        ),
        arrays=dict(
            evaluation.arrays, y=y, minority=~everyone, demixed_on=everyone, max_correlation=np.full(4, np.nan),
            hsic=np.full(4, np.nan), sources=np.array([0]), real=np.zeros((len(y), 1)), real_y=y,
            synthetic=np.ones((8, 1)), synthetic_y=np.repeat(np.arange(4), 2),
        ),
        training={"encoder": None, "restarts": []},
    )  # fmt: skip
    outline = Outline(render(bare))
    for words in (
        "A fitted ECRT model", "No class is clearly rarer", "1 class has no test row: “d”.", "The only source",
        "found in closed form", "training used none", "your own array", "The error is not finite",
    ):  # fmt: skip
        assert words in outline.text
    assert "nan" not in outline.text


@pytest.mark.usefixtures("undrawn")
def test_failed_restarts_are_said() -> None:
    evaluation = made(["a", "b", "c"])
    failed = Restart(1, np.nan, None, error="It <diverged>.")
    restarts = [*evaluation.training["restarts"], failed]
    text = render(replace(evaluation, training=evaluation.training | {"restarts": restarts}))
    assert "1 failed: It &lt;diverged&gt;." in text


@pytest.mark.usefixtures("undrawn")
def test_equally_frequent_classes_need_no_bands() -> None:
    evaluation = made([str(index) for index in range(40)], n_rows=400)
    equal = replace(evaluation, arrays=dict(evaluation.arrays, counts=np.full(40, 5)))
    assert "no frequent class can take rows from a rare one" in render(equal)


def test_a_label_that_our_font_lacks_gives_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert "稀有" in svg(lambda axes: axes.set_title("稀有") and None, "x")
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


# --- diagnostics in words -----------------------------------------------------------------------------------------


def test_chance_correlation_is_that_of_independent_sources() -> None:
    rng = np.random.default_rng(0)
    largest = []
    for _ in range(400):
        correlation = np.corrcoef(rng.normal(size=(30, 6)), rowvar=False)
        largest.append(np.abs(correlation - np.eye(6)).max())
    assert np.mean(np.array(largest) > chance_correlation(30, 6)) == pytest.approx(0.05, abs=0.03)
    assert chance_correlation(2, 6) == chance_correlation(30, 1) == 1.0


def _answers(evaluation: Evaluation) -> dict[str, str]:
    return {name: finding.answer for name, finding in source_findings(evaluation.arrays, evaluation.facts).items()}


def test_findings_answer_each_question() -> None:
    good = made([f"class {index}" for index in range(9)])
    good = replace(good, arrays=dict(good.arrays, n_examples=np.full(9, 300)))
    assert set(_answers(good).values()) == {"yes"}

    classes = dict(good.arrays, max_correlation=np.where(good.arrays["minority"], 0.9, 0.05))
    unseen = _answers(replace(good, arrays=classes))
    assert unseen["independence-unseen"] == "no"
    assert unseen["independence-seen"] == "yes"

    slight = _answers(replace(good, arrays=dict(good.arrays, max_correlation=np.full(9, 0.25))))
    assert slight["independence-seen"] == "partly"

    few = dict(good.arrays, n_examples=np.full(9, 5), max_correlation=np.full(9, 0.6))
    blind = _answers(replace(good, arrays=few))
    assert blind["independence-unseen"] == "cannot tell"

    far = dict(good.arrays, log_likelihood=np.where(good.arrays["minority"], -30.0, -3.0))
    assert _answers(replace(good, arrays=far))["likelihood"] == "no"

    model = dict(good.facts, round_trip_error=0.3, enough_classes=False, smallest_singular_value=0.0)
    bad = _answers(replace(good, facts=model))
    assert bad["round-trip"] == "no"
    assert bad["theory"] == "no"
    shared = _answers(replace(good, facts=dict(good.facts, smallest_singular_value=0.0)))
    assert shared["theory"] == "no"


QUESTIONS = {
    "independence-unseen": "Are the sources independent in the classes that de-mixing never saw?",
    "independence-seen": "Are the sources independent in the classes that de-mixing learned from?",
    "likelihood": "Do the unseen classes fit the model as well as the others?",
    "round-trip": "Can sources be turned back into features?",
    "theory": "Do the conditions of the identification theorem hold?",
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("correlation", [0.05, 0.25, 0.97])
@pytest.mark.parametrize("fine", [True, False])
def test_findings_are_shown_and_what_does_not_hold_comes_with_advice(correlation: float, fine: bool) -> None:
    evaluation = made(["a", "b", "c", "d"])
    classes = dict(
        evaluation.arrays, n_examples=np.full(4, 300), max_correlation=np.full(4, correlation),
        log_likelihood=np.array([-3.0, -3.0, -3.0, -3.0 if fine else -30.0]),
    )  # fmt: skip
    model = dict(evaluation.facts, round_trip_error=1e-6 if fine else 0.3, enough_classes=fine)
    evaluation = replace(evaluation, arrays=classes, facts=model)
    articles = [Outline(text).text for text in re.findall(r"<article>.*?</article>", render(evaluation), re.DOTALL)]
    found = source_findings(evaluation.arrays, evaluation.facts)
    assert list(found) == list(QUESTIONS)
    for article, (name, finding) in zip(articles, found.items(), strict=True):
        question, _, rest = article.partition("?")
        assert question.strip() + "?" == QUESTIONS[name]
        assert rest.strip().startswith(finding.answer)
        assert len(rest) > 140
        if finding.answer in ("no", "partly") and not finding.harmless:
            assert "What to do." in rest, question


# --- clicked through ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium with the driver of the same package; its logs say what the page asked for."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("Chromium and its driver are not installed (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def awkward_address(awkward: Evaluation, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("awkward")
    return write_page(awkward, folder).as_uri()


@pytest.fixture
def opened(browser: Any, awkward_address: str) -> Any:
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.get_log("performance")
    browser.get(awkward_address)
    return browser


def _shown(browser: Any, selector: str) -> list[bool]:
    return [element.is_displayed() for element in browser.find_elements("css selector", selector)]


def _column(browser: Any, table: str, column: int) -> list[str]:
    rows = browser.find_elements("css selector", f"#{table} tbody tr")
    return [row.find_elements("css selector", "th, td")[column].text for row in rows if row.is_displayed()]


def test_page_runs_without_errors_and_asks_for_nothing(opened: Any) -> None:
    assert [entry for entry in opened.get_log("browser") if entry["level"] == "SEVERE"] == []
    asked = []
    for entry in opened.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    assert all(address.startswith(("file:", "data:")) for address in asked)
    assert sum(address.startswith("file:") for address in asked) <= 1
    assert opened.title == "<i>Awkward</i> & Co"
    assert opened.execute_script("return document.images.length") == 0


def test_headings_sort_the_table(opened: Any) -> None:
    def click(name: str) -> Any:
        (head,) = [
            head for head in opened.find_elements("css selector", "#classes-balanced thead th") if name in head.text
        ]
        head.find_element("css selector", "button").click()
        return head

    by_recall = [float(text) for text in _column(opened, "classes-balanced", 4)]
    assert by_recall == sorted(by_recall)  # the weakest first
    head = click("Training rows")
    rows = [int(text) for text in _column(opened, "classes-balanced", 1)]
    assert rows == sorted(rows)
    assert head.get_attribute("aria-sort") == "ascending"
    click("Training rows")
    assert [int(text) for text in _column(opened, "classes-balanced", 1)] == rows[::-1]
    click("Class")
    assert head.get_attribute("aria-sort") is None
    names = _column(opened, "classes-balanced", 0)
    assert names.index("7 rare") < names.index("cat")


def test_switch_shows_one_prior_at_a_time(opened: Any) -> None:
    assert all(_shown(opened, ".under-balanced"))
    assert not any(_shown(opened, ".under-training"))
    before = opened.find_element("css selector", "#summary").text
    opened.find_element("css selector", "#prior-training + span").click()
    assert all(_shown(opened, ".under-training"))
    assert not any(_shown(opened, ".under-balanced"))
    assert opened.find_element("css selector", "#summary").text != before
    assert all(_shown(opened, "#metrics tbody tr"))  # both priors side by side stay


@pytest.mark.parametrize("anchor", SECTIONS)
def test_links_lead_to_their_section(opened: Any, anchor: str) -> None:
    opened.find_element("css selector", f'nav a[href="#{anchor}"]').click()
    top, bar = (
        opened.execute_script(f"return document.querySelector('{selector}').getBoundingClientRect().{side}")
        for selector, side in ((f"#{anchor} h2", "top"), (".bar", "bottom"))
    )
    height = opened.execute_script("return window.innerHeight")
    assert bar - 2 <= top < height


def test_long_tables_unfold_and_are_searched(browser: Any, many_folder: Path) -> None:
    browser.get((many_folder / "report.html").as_uri())
    (fold,) = [fold for fold in browser.find_elements("css selector", "#classes details") if fold.is_displayed()]
    search = fold.find_element("css selector", "input[type=search]")
    assert not search.is_displayed()
    fold.find_element("css selector", "summary").click()
    search.send_keys("SPECIES 19")
    found = _column(browser, "classes-balanced", 0)
    assert len(found) == 10
    assert all(name.startswith("species 19") for name in found)
    assert fold.find_element("css selector", "output").text == "10 of 200"
    search.clear()
    search.send_keys("no such thing")
    assert _column(browser, "classes-balanced", 0) == []


@pytest.mark.parametrize("width", [320, 390, 768])
@pytest.mark.parametrize("which", ["awkward", "many"])
def test_a_phone_needs_no_sideways_scrolling(
    opened: Any, many_folder: Path, awkward_address: str, width: int, which: str
) -> None:
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    )
    opened.get(awkward_address if which == "awkward" else (many_folder / "report.html").as_uri())
    opened.execute_script("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    assert opened.execute_script("return window.innerWidth") <= width  # nothing made the browser zoom out
    sizes = opened.execute_script(
        "return [...document.querySelectorAll('svg')].filter((s) => s.clientWidth)"
        ".map((s) => s.clientWidth / s.viewBox.baseVal.width)"
    )
    assert min(sizes) * 8.5 > 6.5 if width == 320 else min(sizes) * 8.5 > 7.5  # the smallest text in a figure, in px


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_reader(opened: Any, scheme: str) -> None:
    opened.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    paper, ink, axis = opened.execute_script(
        "const of = (selector, property) => getComputedStyle(document.querySelector(selector))[property];"
        "return [of('body', 'backgroundColor'), of('body', 'color'), of('svg text', 'fill')]"
    )
    brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (paper, ink, axis)]
    if scheme == "dark":
        assert brightness[0] < 150 < 500 < min(brightness[1:])
    else:
        assert brightness[0] > 700 > 200 > max(brightness[1:])


def test_print_unfolds_tables_and_drops_the_links(browser: Any, many_folder: Path) -> None:
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    browser.get((many_folder / "report.html").as_uri())
    assert not any(_shown(browser, ".bar nav"))
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert len(_column(browser, "classes-balanced", 0)) == 200
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert not any(_shown(browser, "#classes-balanced"))
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_without_a_script_everything_can_be_read(opened: Any, awkward_address: str) -> None:
    page = Path(awkward_address.removeprefix("file://"))
    bare = page.with_name("bare.html")
    text = page.read_text(encoding="utf-8")
    bare.write_text(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL), encoding="utf-8")
    opened.get(bare.as_uri())
    assert len(_column(opened, "classes-balanced", 0)) == len(LABELS)
    assert not any(_shown(opened, ".search"))  # what needs the script is not offered
    assert opened.find_elements("css selector", "thead button") == []
    opened.find_element("css selector", "#prior-training + span").click()
    assert len(_column(opened, "classes-training", 0)) == len(LABELS)
