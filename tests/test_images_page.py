"""The page on images: every line of its tables is what the results say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ecrt.experiments.cifar_transfer import CHOSEN, RIVAL, preferred

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")


def summary(name):
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))["summary"]


def points(line, metric):
    """A difference in points, signed, with its interval."""
    return f"{100 * line[f'{metric}_gain']:+.2f} ± {100 * line[f'{metric}_gain_half_width']:.2f}"


def percent(line, metric):
    return f"{100 * line[metric]:.1f} ± {100 * line[f'{metric}_half_width']:.1f}"


def transfer_line(line):
    start = f"| {line['what']} | {100 * line['top1']:.1f} | "
    if line["what"] == RIVAL:
        return f"{start}| | | {line['nll']:.3f} |"
    gains = " | ".join(points(line, metric) for metric in ("top1", "top1_final_half", "top1_rare"))
    return f"{start}{gains} | {line['nll_gain']:+.3f} ± {line['nll_gain_half_width']:.3f} |"


def method_line(line):
    return (
        f"| {line['what']} | {percent(line, 'top1')} | {percent(line, 'top5')} | {line['nll']:.3f} | "
        f"{line['macro_f1']:.3f} |"
    )


def mnist_line(line):
    return f"| {line['what']} | {line['top1']:.4f} ± {line['top1_half_width']:.4f} | {line['nll']:.4f} |"


def lines_of_tables():
    """What must stand on the page: its section's heading, and a line."""
    for line in summary("cifar100-transfer"):
        if line["part"] == "run":
            yield f"### {line['protocol']}, transfer", transfer_line(line)
    for line in summary("cifar100-protocols"):
        yield f"### {line['protocol']}, all methods", method_line(line)
    for line in summary("cifar100"):
        if line["what"] != "ECRT":
            yield f"### {line['protocol']}, all methods", method_line(line)
    for line in summary("cifar100-sources"):
        if "top1" in line:
            yield f"### {line['protocol']}, {line['encoder']}", method_line(line)
    for line in summary("mnist"):
        if line.get("n_rare") in (0, 5) and line.get("network") == "cnn" and "paper" not in line["what"]:
            yield "## MNIST", mnist_line(line)


@pytest.mark.parametrize("heading", sorted({heading for heading, _ in lines_of_tables()}))
def test_tables_say_what_the_results_say(heading):
    section = PAGE.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    missing = [line for place, line in lines_of_tables() if place == heading and line not in section]
    assert missing == []


def test_gains_and_curves_are_those_of_the_results():
    for line in summary("cifar100-sources"):
        if "top1_gain" in line:
            assert points(line, "top1") in PAGE, line
        if "curves" in line:
            for curve in line["curves"].values():
                assert f"{100 * curve[0]:.1f}, {100 * curve[4]:.1f}, {100 * curve[-1]:.1f}" in PAGE, line["protocol"]


def test_what_was_chosen_is_what_the_pilots_preferred():
    assert preferred(summary("cifar100-transfer")) == CHOSEN
