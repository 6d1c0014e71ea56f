"""The paper's experiments and the page that sets its figures beside ours."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from ecrt.data import toy_sources
from ecrt.data.imbalance import henon
from ecrt.errors import InputError
from pages import Outline
from paper.__main__ import app
from paper.data.images import load_mnist, read_idx
from paper.experiments import extreme, inversion, toy_figures
from paper.experiments.inversion import BOUNDED, UNBOUNDED
from paper.experiments.mmd import mmd_rbf
from paper.experiments.preset import STEPS
from paper.experiments.toy_figures import equivalent_size
from paper.page.claims import CLAIMS
from paper.page.judging import Best, Claim, Comparison, Judgement, Less, judge
from paper.page.page import judge_claims, render_paper, summarise_paper, write_paper_page
from paper.page.results import PaperResults
from paper.published import EXTREME, TABLE_1

RESULTS = Path(__file__).parents[1] / "results"


def naive_mmd(x, y, bandwidth):
    def kernel(a, b):
        return np.exp(-sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) / (2 * bandwidth**2))

    def mean(first, second):
        return sum(kernel(a, b) for a in first for b in second) / (len(first) * len(second))

    return np.sqrt(mean(x, x) + mean(y, y) - 2 * mean(x, y))


def test_mmd_is_the_distance_of_mean_embeddings():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 3)), rng.normal(1, 2, size=(5, 3))
    for place, bandwidth in enumerate((0.3, 0.5, 2.0)):
        assert mmd_rbf(x, y, (0.3, 0.5, 2.0))[place] == pytest.approx(naive_mmd(x, y, bandwidth), abs=1e-12)
    assert mmd_rbf(x, y)[0] == pytest.approx(mmd_rbf(y, x)[0])


def test_mmd_in_blocks_of_rows():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1203, 2)), rng.normal(size=(40, 2))
    assert mmd_rbf(np.tile(y, (30, 1)), y)[0] == pytest.approx(0.0, abs=1e-7)  # the same distribution, over two blocks
    assert 0 < mmd_rbf(x, y)[0] < mmd_rbf(x, y + 1)[0]


def write_idx(file, array):
    sizes = np.array(array.shape, dtype=">u4").tobytes()
    file.write_bytes(gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()))


@pytest.fixture
def mnist_folder(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part, n in (("train", 30), ("t10k", 2)):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (10 * n, 28, 28)))
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", np.tile(np.arange(10), n))
    return tmp_path


def test_mnist_with_rare_digits(mnist_folder):
    data = load_mnist((3, 7), n_minority=4, n_majority=20, path=mnist_folder)
    assert np.bincount(data.y_train).tolist() == [20, 20, 20, 4, 20, 20, 20, 4, 20, 20]
    assert data.X_train.shape == (168, 1, 28, 28)
    assert data.X_test.shape == (20, 1, 28, 28)
    whole = read_idx(mnist_folder / "mnist" / "train-images-idx3-ubyte.gz")
    kept = [(whole == image[0]).all(axis=(1, 2)).argmax() for image in data.X_train]
    assert (np.asarray(kept) % 10 == data.y_train).all()  # images keep their labels
    again = load_mnist((3, 7), n_minority=4, n_majority=20, path=mnist_folder)
    assert (again.X_train == data.X_train).all()


def test_what_is_no_idx_file_is_told(tmp_path, mnist_folder):
    with pytest.raises(InputError, match="does not exist"):
        read_idx(tmp_path / "none.gz")
    (tmp_path / "text").write_text("hello there")
    with pytest.raises(InputError, match="no idx file"):
        read_idx(tmp_path / "text")
    (tmp_path / "short").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 9, 1]))
    with pytest.raises(InputError, match="should hold 9 values, but has 1"):
        read_idx(tmp_path / "short")
    with pytest.raises(InputError, match="no digit"):
        load_mnist((10,), path=mnist_folder)


def test_augmented_risk_has_less_variance_and_no_bias_under_the_true_mechanism():
    row = toy_figures.run_cell(part="variance", seed=0, sizes=[10], n_draws=300)
    for risk in row["risks"]:
        assert risk["augmented_variance"] < risk["plain_variance"], risk
        assert abs(risk["augmented_mean"] - risk["plain_mean"]) < 2.5 * risk["gap_half_width"]


def test_gaussian_augmentation_is_nearer_to_the_truth_than_permutation():
    row = toy_figures.run_cell(part="mmd", seed=0, sizes=[5, 200], n_reference=400)

    def mean(kind, size):
        return np.mean([d["mmd"][1] for d in row["distances"] if (d["kind"], d["size"]) == (kind, size)])

    assert mean("parametric", 5) < mean("permutation", 5)
    assert mean("permutation", 200) < mean("permutation", 5)
    assert mean("oracle", 5) < mean("parametric", 5)


def test_the_papers_preset_on_the_toy_beside_its_network_and_the_steps_to_ours():
    row = toy_figures.run_cell(
        part="efficiency, paper preset", seed=0, n_majority=60, sizes=[3, 12], stepped=[12], epochs=1, n_test=20
    )
    everywhere = [toy_figures.NETWORK]
    for prior in ("1P", "MP"):
        everywhere += [f"ECRT-{prior}, paper preset", f"ECRT-{prior}, paper preset{toy_figures.PLAIN}"]
    wanted = [(name, size) for name in everywhere for size in (3, 12)]
    wanted += [(toy_figures.MANY_PRIORS + step, 12) for step in STEPS]
    assert [(run["what"], run["n_minority"]) for run in row["runs"]] == wanted
    assert len({run["nll"] for run in row["runs"] if run["n_minority"] == 12}) == 8  # every row is a fit of its own


def test_without_a_shared_mechanism_every_class_bends_differently():
    data = toy_sources().draw([5] * 7, np.random.default_rng(0))
    z = toy_figures._own_bends(data)
    assert z[data.y == 0, 0] == pytest.approx(1 + data.s[data.y == 0, 1])
    middle = data.y == 3
    assert z[middle] == pytest.approx(henon(data.s[middle]))


def test_an_unbounded_flow_loses_sources_that_a_bounded_one_brings_back():
    lost = {what: inversion.run_cell(what=what, n_features=6, seed=0, steps=150) for what in (UNBOUNDED, BOUNDED)}
    assert lost[BOUNDED]["lost_at_10"] == 0 < lost[UNBOUNDED]["lost_at_10"]
    assert lost[BOUNDED]["ours_over_forward"] < lost[BOUNDED]["usual_over_forward"]


def test_equivalent_size_between_and_beyond_the_points():
    assert equivalent_size([5, 20, 80], [0.1, 0.3, 0.4], 0.3) == 20
    assert equivalent_size([5, 20, 80], [0.1, 0.3, 0.4], 0.35) == 40
    assert equivalent_size([5, 20, 80], [0.1, 0.3, 0.4], 0.05) == 5


def test_the_papers_figures_are_where_they_belong():
    assert EXTREME[5]["ecrt_with"] == {"nll": 3.7098, "top1": 0.0760, "top5": 0.3220}
    assert EXTREME[150]["erm"] == {"nll": 6.9174, "top1": 0.0011, "top5": 0.0059}
    assert tuple(EXTREME) == extreme.SIZES
    assert TABLE_1["cifar100"]["ECRT-MP"] == pytest.approx({"top1": 0.53, "top5": 0.8199, "nll": 2.31})
    assert TABLE_1["arxiv"]["ECRT"] == pytest.approx({"accuracy": 0.4833, "nll": 0.0434})
    for figures in TABLE_1.values():
        assert all(0 < value < 1 for values in figures.values() for name, value in values.items() if name != "nll")


def extreme_lines(top1):
    lines = []
    for size in extreme.SIZES:
        for method, name in extreme.METHODS.items():
            shift = 0.01 if method == "oracle" else 0.0
            lines.append({
                "what": name, "method": method, "preset": "ours", "n_classes": 1000, "n_per_class": size, "runs": 5,
                "top1": top1 + shift, "top5": 4 * top1, "nll": 3.0, "top1_half_width": 0.001, "top5_half_width": 0.001,
                "nll_half_width": 0.01, "top1_of_oracle": 0.9, "top5_of_oracle": 1.0, "nll_above_oracle": 0.0,
            })  # fmt: skip
    return lines


def extreme_rows(top1):
    """Two draws of every size: all methods are level, but the oracle has a little more top-1."""
    return [
        {"cell": {"preset": "ours", "draw": draw, "n_classes": 1000, "n_per_class": size, "steps": 10}, "seconds": 1.0,
         **{method: {"top1": top1 + 0.01 * (method == "oracle") + 1e-6 * draw, "top5": 4 * top1, "nll": 3.0}
            for method in extreme.METHODS}}
        for draw in (0, 1) for size in extreme.SIZES
    ]  # fmt: skip


def ablation_rows(without):
    """The base, and the likelihood left out, over four draws of the toy."""
    top1 = {"base": [0.8] * 4, "likelihood weight 0": without}
    return [
        {"cell": {"data": "toy", "variant": name, "seed": seed, "draw": seed}, "mcc": 0.9,
         "runs": {name: {"top1": value, "nll": 0.5}}}
        for name, values in top1.items() for seed, value in enumerate(values)
    ]  # fmt: skip


def write_results(folder, name, lines, rows=(), command=None):
    folder.mkdir(exist_ok=True)
    content = {
        "experiment": name, "command": command or f"python -m paper {name}", "summary": lines, "rows": list(rows),
        "cell_seconds": 60.0, "machine": {"platform": "x86_64"},
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(content))


def verdicts(folder):
    return {claim.text: claim for claim in judge_claims(PaperResults(folder))}


def test_claims_follow_the_figures(tmp_path):
    beyond = "ECRT works well (here: beyond the paper's figures)."
    write_results(tmp_path / "good", "extreme-sizes", [], extreme_rows(0.11))
    assert verdicts(tmp_path / "good")[beyond].verdict == "holds"
    assert verdicts(tmp_path / "good")[beyond].found.summary == "all 21 hold"
    assert verdicts(tmp_path / "good")["ERM is hardly better than guessing."].verdict == "does not hold"
    assert verdicts(tmp_path / "good")["Our own bar: close to the oracle that knows f."].verdict == "holds in part"
    write_results(tmp_path / "bad", "extreme-sizes", [], extreme_rows(0.002))
    assert verdicts(tmp_path / "bad")[beyond].verdict == "holds in part"  # the NLL alone
    assert verdicts(tmp_path / "bad")["ERM is hardly better than guessing."].verdict == "holds"
    assert verdicts(tmp_path / "bad")["Naive GCL drifts among solutions."].verdict == "not run"


def test_a_gain_within_noise_is_no_gain(tmp_path):
    for name, without, verdict in (
        ("noise", [0.7, 0.8, 0.85, 0.77], "undecided"),
        ("clear", [0.78, 0.77, 0.78, 0.79], "holds"),
        ("against", [0.82, 0.83, 0.82, 0.81], "does not hold"),
    ):
        write_results(tmp_path / name, "ablations", [], ablation_rows(without))
        assert verdicts(tmp_path / name)["The likelihood helps."].verdict == verdict
    found = verdicts(tmp_path / "against")["The likelihood helps."].found
    assert [one.cells for one in found.compared] == [("toy", "0.800", "0.820", "-0.0200 ± 0.0130", "does not hold")]
    assert found.missing == ("extreme",)


def test_trial_runs_decide_nothing(tmp_path):
    write_results(tmp_path / "r", "extreme-sizes", extreme_lines(0.11), command="python -m paper extreme-sizes --smoke")
    page = summarise_paper(PaperResults(tmp_path / "r"))
    assert page.trials == ("extreme-sizes",)
    assert not any(table.has_ours for table in page.tables)
    assert {claim.verdict for claim in page.claims} == {"not run"}


def test_page_and_markdown(tmp_path):
    rows = [
        {"cell": cell, **toy_figures.run_cell(**cell)}
        for cell in toy_figures.cells(smoke=True)
        if cell["part"] in ("mmd", "variance", "perturbed", "picture")
    ]
    lines = toy_figures.summarise(rows)
    write_results(tmp_path / "r", "toy-figures", lines, rows)
    write_results(tmp_path / "r", "extreme-sizes", extreme_lines(0.11))
    page = summarise_paper(PaperResults(tmp_path / "r"))
    assert len(page.figures) == 5
    outline = Outline(render_paper(page))
    assert not outline.open
    assert len(outline.ids) == len(set(outline.ids))
    assert all(load.startswith("#") for load in outline.loads if not load.startswith("data:"))
    assert "0.0760" in outline.text
    assert "0.110 ± 0.001" in outline.text
    text = write_paper_page(tmp_path / "r", tmp_path / "paper.md").read_text()
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    compared = sum(bool(claim.found.compared) for claim in page.claims)
    assert 0 < compared < len(page.claims)
    assert len(tables) == len(page.sections) + len(page.tables) + compared
    links = re.findall(r"\]\(#(claim-\d+)\)", text)
    assert len(links) == len(page.claims) == len(set(links))
    assert all(f"\n### {link.replace('claim-', 'Claim ')}\n" in text for link in links)
    pictures = re.findall(r"\]\((paper-figures/\d+\.svg)\)", text)
    assert len(set(pictures)) == len(page.figures)
    for picture in pictures:
        assert ElementTree.parse(tmp_path / picture).getroot().tag.endswith("svg")
    for table in tables:
        assert len({line.count("|") for line in table}) == 1, table[0]
    with pytest.raises(InputError, match=r"\.html or \.md"):
        write_paper_page(tmp_path / "r", tmp_path / "paper.pdf")
    with pytest.raises(InputError, match="no folder"):
        PaperResults(tmp_path / "none")


def test_command_writes_the_page(tmp_path, monkeypatch):
    write_results(tmp_path / "results", "extreme-sizes", extreme_lines(0.11), extreme_rows(0.11))
    monkeypatch.setenv("ECRT_RESULTS", str(tmp_path / "results"))
    found = CliRunner().invoke(app, ["page"])
    assert found.exit_code == 0, found.output
    assert "All 21 hold" in (tmp_path / "results" / "page.html").read_text()


# --- judging ------------------------------------------------------------------------------------------------------


def runs_of(**values):
    """Made-up rows of a recipe with a top-1 for each seed of each method."""
    return [
        {"cell": {"method": name, "seed": seed}, "top1": top1}
        for name, of in values.items() for seed, top1 in of.items()
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "text", "verdict"),
    [
        ({"ours": {"what": "a"}, "theirs": {"what": "b"}}, "0.620 against 0.520 (+0.1000 ± 0.0000)", "holds"),
        ({"ours": {"what": "b"}, "theirs": {"what": "a"}}, "(-0.1000 ± 0.0000)", "does not hold"),
        ({"ours": {"what": "b"}, "theirs": {"what": "a"}, "lower": True}, "(+0.1000 ± 0.0000)", "holds"),
        ({"ours": {"what": "a"}, "theirs": {"what": "once"}}, "(+0.1000)", "undecided"),
        ({"ours": {"what": "b"}, "theirs": {"what": "a"}, "margin": 0.11}, "(+0.0100 ± 0.0000)", "holds"),
        ({"ours": {"what": "b"}, "theirs": {"what": "a"}, "times": 0.5}, "(+0.2100 ± 0.1271)", "holds"),
        ({"ours": {"what": "a"}, "theirs": 0.6}, "0.620 against 0.600 (+0.0200 ± 0.2541)", "undecided"),
        ({"ours": {"what": "a"}, "theirs": Best({}, without=("a", "else", "once"))}, "against 0.520 (b) (", "holds"),
        ({"ours": {"what": "a"}, "theirs": {"what": "elsewhere"}}, "(+0.0200 ± 0.1217)", "undecided"),
        ({"ours": Less({"what": "a"}, {"what": "b"}), "theirs": 0.05}, "0.100 against 0.050 (+0.0500", "holds"),
        ({"ours": {"what": "a"}, "theirs": {"what": "nowhere"}}, "no results yet", "not run"),
    ],
)
def test_a_comparison_is_judged_by_its_interval(tmp_path, options, text, verdict):
    a, b = {0: 0.60, 1: 0.64}, {0: 0.50, 1: 0.54}
    write_results(tmp_path, "made-up", [], runs_of(a=a, b=b, elsewhere={7: 0.58, 8: 0.62}, once={1: 0.54}))
    comparison = Comparison(label="x", file="made-up", metric="top1", **options)
    found = judge(Claim("", "", "Top-1", (comparison,)), PaperResults(tmp_path))
    assert found.verdict == verdict
    shown = "; ".join(
        f"{ours} against {theirs} ({gain})" for _, ours, theirs, gain, _ in (one.cells for one in found.compared)
    )
    assert text in (shown or found.summary)


@pytest.mark.parametrize(
    ("sides", "verdict"),
    [
        ("ab ab", "holds"), ("ab ac", "holds in part"), ("ab ba", "holds in part"), ("ab ac ba", "holds in part"),
        ("ac ac", "undecided"), ("ac ba", "does not hold"), ("ba ba", "does not hold"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("repeated", [1, 8])
def test_a_claim_of_several_parts_lists_them_all(tmp_path, sides, verdict, repeated):
    a, b, c = {0: 0.60, 1: 0.64, 2: 0.62}, {0: 0.50, 1: 0.54, 2: 0.52}, {0: 0.70, 1: 0.54, 2: 0.60}
    write_results(tmp_path, "made-up", [], runs_of(a=a, b=b, c=c))
    comparisons = tuple(
        Comparison(label=f"part {place}", file="made-up", metric="top1", ours={"what": x}, theirs={"what": y})
        for place, (x, y) in enumerate(sides.split() * repeated)
    )
    found = judge(Claim("", "", "Top-1", comparisons), PaperResults(tmp_path))
    assert found.verdict == verdict
    assert found.missing == ()
    unknown = Comparison(label="unknown", file="none", metric="top1", ours={}, theirs=0.0)
    fewer = judge(Claim("", "", "Top-1", (*comparisons, unknown)), PaperResults(tmp_path))
    assert fewer == Judgement(verdict, found.compared, ("unknown",))
    assert [one.label for one in found.compared] == [f"part {place}" for place in range(len(comparisons))]


def test_spread_is_compared_by_distances_from_the_median(tmp_path):
    wide, narrow = dict(enumerate([0.1, 0.5, 0.9, 0.3, 0.7])), dict(enumerate([0.50, 0.51, 0.49, 0.5, 0.5]))
    write_results(tmp_path, "made-up", [], runs_of(wide=wide, narrow=narrow))
    for ours, theirs, verdict in (("wide", "narrow", "holds"), ("narrow", "wide", "does not hold")):
        sides = {"ours": {"what": ours}, "theirs": {"what": theirs}}
        comparison = Comparison(label="x", file="made-up", metric="top1", spread=True, **sides)
        assert judge(Claim("", "", "", (comparison,)), PaperResults(tmp_path)).verdict == verdict


def test_the_rate_of_the_excess_risk_is_a_power_of_the_minority_size(tmp_path):
    text = "With a shared embedding the excess risk falls faster than with the root of n (Theorem 3)."
    powers = {"ECRT-1P, paper preset" + toy_figures.PLAIN: -0.9, toy_figures.NETWORK: -0.4}
    rows = [
        {"cell": {"part": "efficiency, paper preset", "seed": seed},
         "runs": [{"what": what, "n_minority": n, "excess_risk": 0.1 * n ** (power + 0.01 * seed)}
                  for what, power in powers.items() for n in (5, 20, 80)]}
        for seed in range(3)
    ]  # fmt: skip
    write_results(tmp_path, "toy-preset", [], rows)
    found = verdicts(tmp_path)[text]
    assert found.verdict == "holds"
    assert found.found.compared[1].cells[:3] == ("features, as many epochs", "-0.890", "-0.390")


def test_every_comparison_of_every_claim_finds_its_runs():
    """A name that is misspelt would only leave a comparison out."""
    results = PaperResults(RESULTS)
    for claim in CLAIMS:
        for comparison in (one for one in claim.comparisons if (RESULTS / f"{one.file}.json").exists()):
            alone = judge(Claim("", "", "", (comparison,)), results)
            assert alone.verdict != "not run", comparison
