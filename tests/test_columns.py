"""What columns hold, told from how people write them; and new files read as the first one was."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import warnings
import zipfile
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ecrt.cli import app
from ecrt.data import ColumnReading, ReadOptions, read_data
from ecrt.data.column_decisions import decide_columns, read_target_column
from ecrt.data.columns import read_columns
from ecrt.disk import typed
from ecrt.errors import BadContentError, ECRTWarning, InputError
from ecrt.runs.model_folder import write_predictions

ROWS = 60
RNG = np.random.default_rng(0)
AMOUNTS = RNG.normal(size=ROWS) * 50 + 100
NOW = datetime.now().year
DAYS = pd.Series(pd.date_range("2021-01-01", periods=ROWS, freq="37h"))


def swapped(text):
    return text.replace(",", "#").replace(".", ",").replace("#", ".")


def indian(value):
    """As 10,06,286.00."""
    lakhs = re.sub(r"(?<=\d)(?=(\d\d)+$)", ",", str(int(abs(value)) // 1000))
    rest = f"{abs(value) % 1000:06.2f}"
    return "-" * int(value < 0) + (f"{lakhs},{rest}" if lakhs != "0" else f"{float(rest):.2f}")


def decide(words, name="x", separator=",", options=None, **further):
    table = pd.DataFrame({name: list(map(str, words))} | further, dtype=str)
    readings, typed = decide_columns(table, options or ReadOptions(), separator=separator)
    return readings[0], typed.get(name)


NUMBERS = {
    "point": (lambda v: f"{v:.2f}", 2),
    "comma": (lambda v: f"{v:.2f}".replace(".", ","), 2),
    "thousands": (lambda v: f"{v * 1000:,.2f}", 2),
    "indian thousands": (lambda v: indian(round(v * 1000, 2)), 2),
    "german thousands": (lambda v: swapped(f"{v * 1000:,.2f}"), 2),
    "spaces": (lambda v: f"{v * 1000:,.1f}".replace(",", "\u202f").replace(".", ","), 1),
    "swiss": (lambda v: f"{v * 1000:,.1f}".replace(",", "'"), 1),
    "dollars": (lambda v: f"-${-v:,.2f}" if v < 0 else f"${v:,.2f}", 2),
    "euros": (lambda v: f"{v:.2f} EUR", 2),
    "kilograms": (lambda v: f"{v:.1f} kg", 1),
    "percent": (lambda v: f"{v:.1f}%", 1),
    "parentheses": (lambda v: f"({-v:,.1f})" if v < 0 else f"{v:,.1f}", 1),
    "minus behind": (lambda v: f"{-v:.1f}-" if v < 0 else f"{v:.1f}", 1),
    "long minus": (lambda v: f"{v:.1f}".replace("-", "\u2212"), 1),
    "powers": (lambda v: f"{v:.4e}", 1),
}


@pytest.mark.parametrize("writing", NUMBERS)
def test_numbers_as_people_write_them(writing):
    write, digits = NUMBERS[writing]
    values = AMOUNTS - 100
    reading, typed = decide([write(value) for value in values])
    scale = 1000 if writing in ("thousands", "indian thousands", "german thousands", "spaces", "swiss") else 1
    assert reading.kind == "number", reading
    assert typed.dtype == np.float64
    np.testing.assert_allclose(typed, values * scale, atol=0.51 * 10.0**-digits)


@pytest.mark.parametrize(
    "form",
    [
        "%d.%m.%Y",
        "%m/%d/%Y",
        "%d/%m/%Y",
        "%Y-%m-%d",
        "%Y/%m/%d",
        "%d %B %Y",
        "%b %d, %Y",
        "%d-%b-%Y",
        "%Y%m%d",
        "%d%m%Y",
        "%d%b%Y:00:00:00",
        "%d/%b/%Y",
        "%Y年%m月%d日",
        "%Y. %m. %d.",
        "%d.%m.%y",
    ],
)
def test_dates_as_people_write_them(form):
    reading, typed = decide(DAYS.dt.strftime(form))
    assert reading.kind == "date"
    assert (typed == DAYS.dt.normalize()).all()


@pytest.mark.parametrize("form", ["${}", "{} €", "EUR {}", "{}"])
def test_thousands_and_millions_in_short(form):
    """$859K and $2.1M are amounts of one unit; so are 859K and 2.1M, with a note."""
    amounts = 10.0 ** RNG.uniform(2, 10, ROWS)
    sizes = [
        ("", 1.0) if v < 1e4 else ("K", 1e3) if v < 1e6 else ("M", 1e6) if v < 1e9 else ("bn", 1e9) for v in amounts
    ]
    words = [form.format(f"{v / size:.4f}{name}") for v, (name, size) in zip(amounts, sizes, strict=True)]
    reading, typed = decide(words)
    assert reading.kind == "number"
    np.testing.assert_allclose(typed, amounts, rtol=1e-2)
    assert reading.note == (
        "" if form != "{}" else "K, M and bn behind numbers are read as thousands, millions and billions."
    )
    again, _ = read_columns(pd.DataFrame({"x": words[:5]}), [reading])
    assert again["x"].tolist() == typed[:5].tolist()
    target, found = read_target_column(pd.Series(words, name="x"), ReadOptions())
    np.testing.assert_allclose(target, amounts, rtol=1e-2)
    assert found.note == reading.note


@pytest.mark.parametrize(("units", "said"), [
    (("mW", "MW"), "several units (MW, mW)"), (("mg/l", "Mg/l"), "several units (Mg/l, mg/l)"), (("kg", "KG"), ""),
    (("K", "K"), ""), (("$/h", "$/day"), "several units ($ /day, $ /h)"), (("km", "m"), "several units (km, m)"),
])  # fmt: skip
def test_units_that_look_alike(units, said):
    form = ["${:.1f}{}" if "$" in unit else "{:.1f} {}" for unit in units]
    words = [form[row % 2].format(v, units[row % 2].removeprefix("$")) for row, v in enumerate(AMOUNTS)]
    reading, typed = decide(words)
    assert said in reading.note
    assert reading.kind == ("left out" if said else "number")
    if not said:
        np.testing.assert_allclose(typed, AMOUNTS, atol=0.051)


@pytest.mark.parametrize(("words", "seconds", "said"), [
    (["42:16", "40:11", "1:15:50"], [2536, 2411, 4550], "'42:16' is read as minutes and seconds"),
    (["3:45", "12:10", "1:02:33"], [225, 730, 3753], "'3:45' is read as minutes and seconds"),
    (["75:30", "1:02:03", "59:59"], [4530, 3723, 3599], "'75:30' is read as minutes and seconds"),
    (["42:16", "40:11", "3:05"], [2536, 2411, 185], ""),
    (["12:30", "23:59:30", "9:15"], [45000, 86370, 33300], "'12:30' is read as hours and minutes"),
    (["12:30 pm", "1:59:30 am", "9:15 am"], [45000, 7170, 33300], ""),
    (["12:30", "23:59", "9:15"], [45000, 86340, 33300], ""),
    (["120:30", "36:15", "9:15"], [433800, 130500, 33300], ""),
    (["3:13.25", "2:38.5", "1:02:03"], [193.25, 158.5, 3723], ""),
    (["3:13", "2:38", "1:59.5"], [193, 158, 119.5], ""),
    (["3:13"] * 10 + ["1:59.5"], [193] * 10 + [119.5], ""),
])  # fmt: skip
def test_times_of_two_and_three_parts_keep_their_order(words, seconds, said):
    reading, typed = decide(words * 20)
    assert typed.tolist() == seconds * 20
    assert said in reading.note
    assert bool(reading.note) == bool(said)
    again, _ = read_columns(pd.DataFrame({"x": words}, dtype=str), [reading])
    assert again["x"].tolist() == seconds


def test_times_of_dates_zones_and_languages():
    stamps = decide(DAYS.dt.strftime("%Y-%m-%dT%H:%M:%S+02:00"))[1]
    assert (stamps == DAYS - pd.Timedelta(hours=2)).all()
    assert (decide(DAYS.dt.strftime("%m/%d/%Y %I:%M %p"))[1] == DAYS).all()
    german = ["3. März 2021", "30. Mai 2021", "1. Dez. 2021"] * 20
    assert decide(german)[1].dt.month.tolist()[:3] == [3, 5, 12]
    french = ["14 juillet 2021", "1 août 2021", "2 févr. 2021"] * 20
    assert decide(french)[1].dt.month.tolist()[:3] == [7, 8, 2]
    for others in (
        ["2 maart 2021", "3 mei 2021", "4 okt. 2021"], ["2 marzo 2021", "3 maggio 2021", "4 ottobre 2021"],
        ["2 de março de 2021", "3 de maio de 2021", "4 de outubro de 2021"],
    ):  # fmt: skip
        assert decide(others * 20)[1].dt.month.tolist()[:3] == [3, 5, 10]
    assert decide(["12:30", "23:59:30"] * 20)[1].tolist()[:2] == [45000, 86370]
    bad, typed = decide(["31.02.2021", *DAYS.dt.strftime("%d.%m.%Y")[1:]])
    assert bad.unreadable == 1
    assert typed.isna().tolist() == [True] + [False] * (ROWS - 1)
    assert "1 value, '31.02.2021', is read as missing" in bad.note


@pytest.mark.parametrize(("first", "last"), [
    (1940, 1995), (1931, 2015), (1969, 2001), (2019, 2021), (1999, 1999),
    (NOW - 3, NOW + 4), (NOW - 90, NOW), (1910, 1980),
])  # fmt: skip
def test_years_of_two_digits_do_not_jump(first, last):
    years = [first + row % (last - first + 1) for row in range(4 * ROWS)]
    reading, typed = decide([f"{1 + row % 28}.{1 + row % 12}.{year % 100:02d}" for row, year in enumerate(years)])
    assert typed.dt.year.tolist() == years
    said = f"{first}" if first == last else f"{first} to {last}"
    assert f"Years of two digits are read as {said}." in reading.note
    again, _ = read_columns(pd.DataFrame({"x": [f"3.4.{last % 100:02d}"]}, dtype=str), [reading])
    assert again["x"].dt.year.tolist() == [last]  # also of a row alone


def test_years_of_two_digits_behind_the_name_of_a_month():
    reading, typed = decide([f"{1 + row % 28:02d}-{('Mar', 'Oct')[row % 2]}-{85 + row % 9}" for row in range(ROWS)])
    assert (reading.writing, typed.iloc[1]) == ("day month year", pd.Timestamp("1986-10-02"))
    assert "Years of two digits are read as 1985 to 1993." in reading.note
    again, _ = read_columns(pd.DataFrame({"x": ["3-Apr-68"]}, dtype=str), [reading])
    assert again["x"].dt.year.tolist() == [1968]


def test_years_of_two_digits_lie_near_those_of_four():
    days = [f"{1 + row % 28}.{1 + row % 12}.{1935 + row % 40}" for row in range(ROWS)]
    reading, _ = decide(days)
    assert reading.note == ""
    later, _ = read_columns(pd.DataFrame({"x": ["3.4.40", "3.4.1941"]}, dtype=str), [reading])
    assert later["x"].dt.year.tolist() == [1940, 1941]
    reading, typed = decide([*days, "1.1.40"])
    assert typed.iloc[-1].year == 1940
    assert "are read as 1940." in reading.note


def test_day_and_month_are_told_by_the_whole_column_the_file_or_a_rule():
    either = [f"{1 + place % 12:02d}/{1 + place * 5 % 12:02d}/2021" for place in range(ROWS)]
    reading, _ = decide(either)
    assert reading.writing == "month/day/year"
    assert "no value tells" in reading.note
    assert decide(either, separator=";")[0].writing == "day.month.year"
    other = DAYS.dt.strftime("%d/%m/%Y").tolist()
    reading, _ = decide(either, other=other)  # a column beside it tells
    assert (reading.writing, reading.note) == ("day.month.year", "")
    assert decide([word.replace("/", ".") for word in either])[0].writing == "day.month.year"


def test_a_point_or_comma_is_settled_by_the_file_the_option_or_said():
    words = [f"{place * 37 % 60 + 1}.{place % 50:03d}" for place in range(ROWS)]
    reading, typed = decide(words)
    assert typed[1] == 38.001
    assert "'38.001' is read as 38.001;" in decide(words[1:])[0].note
    assert decide(words, options=ReadOptions(decimal=","))[1][1] == 38001
    reading, typed = decide(words, other=[f"{place},5" for place in range(ROWS)])
    assert typed[1] == 38001
    assert reading.note == ""
    assert decide([word.replace(".", ",") for word in words])[1][1] == 38001
    assert decide([word.replace(".", ",") for word in words], separator=";")[1][1] == 38.001


@pytest.mark.parametrize(
    ("name", "words", "kind"),
    [
        ("Unnamed: 0", range(ROWS), "identifier"),
        ("case", RNG.permutation(ROWS) + 1000, "identifier"),
        ("case", np.cumsum(RNG.integers(1, 9, ROWS)), "identifier"),
        ("case", np.cumsum(RNG.integers(1, 9, ROWS))[::-1], "identifier"),
        ("Unnamed: 0", [*range(45), *range(ROWS - 45)], "identifier"),  # tables of two classes, one below the other
        ("Unnamed: 0", RNG.permutation([*range(45), *range(ROWS - 45)]), "identifier"),
        ("index", [place % 8 for place in range(12)] + [*range(ROWS - 12)], "identifier"),
        ("case", [*range(1, 46), *range(1, ROWS - 44)], "identifier"),
        ("case", [*range(30), *range(29, ROWS - 1)], "identifier"),  # one row is there twice
        ("case", [*range(30), "", *range(31, ROWS)], "identifier"),
        ("hour", [place % 24 for place in range(ROWS)], "number"),
        ("level_0", RNG.integers(10**6, 10**8, ROWS), "identifier"),
        ("case", RNG.choice(200, ROWS, replace=False), "identifier"),
        ("customerId", RNG.integers(10**6, 10**8, ROWS), "identifier"),
        ("uuid", [f"{value:x}-{place}" for place, value in enumerate(RNG.integers(0, 10**9, ROWS))], "identifier"),
        ("account", 10**16 + RNG.integers(0, 10**9, ROWS), "identifier"),
        ("account", 10**16 + RNG.integers(0, 9, ROWS), "category"),
        ("plz", [f"{value:05d}" for value in RNG.integers(1000, 1020, ROWS)], "category"),
        ("zip_code", RNG.integers(10000, 10020, ROWS), "category"),
        ("phone", [f"+49 30 {value}" for value in RNG.integers(10**5, 10**6, ROWS)], "identifier"),
        ("body mass index", [f"{value:.3f}" for value in RNG.random(ROWS)], "number"),
        ("distance", RNG.integers(0, 10**6, ROWS), "number"),
        ("year", RNG.integers(1990, 2020, ROWS), "number"),
        ("price", [f"{value:.4f}" for value in RNG.random(ROWS // 20)] + ["12.2000"] * (ROWS - ROWS // 20), "number"),
        ("grade", RNG.choice(["Q1", "Q2", "A3"], ROWS), "category"),
        ("range", RNG.choice(["10-20", "20-30"], ROWS), "category"),
        ("years", RNG.choice(["< 1 year", "2 years", "10+ years"], ROWS), "category"),
        ("address", [f"192.168.{a}.{b}" for a, b in RNG.integers(0, 255, (ROWS, 2))], "identifier"),
        ("x", [f"{value:.2f} {'EUR' if place % 2 else 'USD'}" for place, value in enumerate(AMOUNTS)], "left out"),
        ("x", ["7"] * ROWS, "left out"),
        ("x", ["", "NA"] * 30, "left out"),
    ],
)  # fmt: skip
def test_what_names_rows_and_what_measures_them(name, words, kind):
    reading, _ = decide(words, name=name)
    assert reading.kind == kind
    assert bool(reading.note) == (kind in ("identifier", "left out") or name in ("account", "plz", "zip_code"))


def test_words_among_numbers_are_missing_ones_and_said():
    words = [f"{value:.2f}" for value in AMOUNTS]
    reading, typed = decide(["n.d." if place % 3 == 0 else word for place, word in enumerate(words)])
    assert (reading.kind, reading.unreadable, int(typed.isna().sum())) == ("number", 20, 20)
    assert "20 values such as 'n.d.' are read as missing" in reading.note
    many = [f"{word} or so, {place}" if place % 3 == 0 else word for place, word in enumerate(words)]
    reading, _ = decide([*many, *many])
    assert reading.kind == "category"
    assert "60 levels" in reading.note
    reading, typed = decide(words, options=ReadOptions(types={"x": "category"}))
    assert list(typed.cat.categories) == sorted(words)
    with pytest.raises(InputError, match="cannot be read as a number: it holds 'red'"):
        decide(["red"] * 30, options=ReadOptions(types={"x": "number"}))
    with pytest.raises(InputError, match="holds text"):
        decide([f"This is the story of number {place}" for place in range(ROWS)] + ["again"] * 2)


@pytest.mark.parametrize("form", ["₩{:,.2f}", "₺{:,.2f}", "Rs. {:,.2f}", "RUB {:,.2f}", "￥{:,.2f}"])
@pytest.mark.parametrize("zero", ["0", "\uff10", "\u0660", "\u06f0", "\u0966"])
def test_currencies_and_digits_of_other_scripts(form, zero):
    digits = {ord("0") + digit: chr(ord(zero) + digit) for digit in range(10)}
    reading, typed = decide([form.format(value).translate(digits) for value in AMOUNTS])
    assert reading.kind == "number"
    np.testing.assert_allclose(typed, AMOUNTS, atol=0.0051)
    for other in (
        "No. {}",
        "rs{}",
        "RM {}",
        "PHP {}",
        "{}\u00bd",
        "{}\u00b3",
    ):  # genes, rooms, versions, fractions, powers
        assert decide([other.format(row % 30) for row in range(ROWS)])[0].kind == "category"
    assert decide([f"{row % 30} m\u00b2" for row in range(ROWS)])[0].unit == "m\u00b2"


def test_numbers_with_both_decimal_signs_are_said():
    words = ["5,014" if row % 2 else f"{row % 9 + 1}.{100 + row}" for row in range(ROWS)]
    table = pd.DataFrame({"x": words, "settled": [f"{value:.1f}" for value in AMOUNTS]})
    reading = decide_columns(table, ReadOptions())[0][0]
    assert reading.note == "'1.100' is read as 1.1, yet '5,014' is read as 5014. Write all with one decimal sign."


def test_dates_that_are_not_read_are_said():
    for other in ("%d.%m.%Y", "no date"):
        words = [f"{day:{'%Y-%m-%d' if row % 5 > 1 else other}}" for row, day in enumerate(DAYS[:30])]
        reading, _ = decide(words * 2)
        assert reading.kind == "category"
        assert f"Most values hold dates, but not all in one way, as {words[2]!r} and {words[0]!r}" in reading.note
    odd = [f"{day:%d}. Quintil {day:%Y}" for day in pd.date_range("2020-01-01", periods=ROWS)]
    assert "If these are numbers or dates" in decide([f"{word}/{row}" for row, word in enumerate(odd)])[0].note
    zero = ["0000-00-00" if row % 8 == 0 else f"{day:%Y-%m-%d}" for row, day in enumerate(DAYS)]
    assert (decide(zero)[0].kind, decide(zero)[0].missing) == ("date", 8)


def test_merged_cells_of_a_sheet_are_said(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("site", "x", "label"), *((f"S{row % 5}", AMOUNTS[row], "ab"[row % 2]) for row in range(ROWS))]:
        book.active.append(row)
    book.active.merge_cells("A1:B1")
    book.save(tmp_path / "title.xlsx")
    book.active.unmerge_cells("A1:B1")
    book.active["B1"] = "x"
    book.active.merge_cells("A2:A9")
    book.save(tmp_path / "site.xlsx")
    with pytest.warns(ECRTWarning, match="merged cells hold their value in the first row alone"):
        read_data(tmp_path / "site.xlsx", target=["label"])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "merged")
        read_data(tmp_path / "title.xlsx", target=["label"])


INSIDE = "Most values hold numbers, but some cannot be read as such, as "


@pytest.mark.parametrize(("words", "kind", "said"), [
    (["<2.5" if row % 3 == 0 else f"{row % 15}.5" for row in range(ROWS)], "category", f"{INSIDE}'<2.5'"),
    ([f"[{row % 15}.1]" for row in range(ROWS)], "category", f"{INSIDE}'[0.1]'"),
    ([f"[{value:.2f}]" for value in AMOUNTS], "identifier", INSIDE),
    (["XL" if row % 3 == 0 else str(row % 7 + 36) for row in range(ROWS)], "category", f"{INSIDE}'XL'"),
    ([f"{row % 12}{'ABC'[row % 3]}" for row in range(ROWS)], "category", ""),
    ([f"10-{row % 12 + 20}" for row in range(ROWS)], "category", ""),
    (["1", "2", "3", "4", "other"] * 12, "category", ""),
])  # fmt: skip
def test_numbers_that_cannot_be_read_are_said(words, kind, said):
    reading, _ = decide(words)
    assert reading.kind == kind
    assert said in reading.note
    assert bool(reading.note) == bool(said)


def test_a_target_of_numbers_that_cannot_be_read_is_said():
    target = pd.Series(["<2.5" if row % 3 == 0 else f"{row % 50}.5" for row in range(ROWS)], name="y")
    assert f"{INSIDE}'<2.5'" in read_target_column(target, ReadOptions())[1].note
    few = pd.Series(["<2" if row % 3 == 0 else str(row % 10) for row in range(ROWS)], name="y")
    assert read_target_column(few, ReadOptions())[1].note == ""


@pytest.mark.parametrize("form", ['="{}"', "'{}"])
def test_marks_of_text_in_excel_are_no_part_of_a_value(form):
    amounts = [f"{value:.2f}" for value in AMOUNTS]
    reading, typed = decide([form.format(word) if row % 2 else word for row, word in enumerate(amounts)])
    assert (reading.kind, reading.note, typed.tolist()) == ("number", "", [float(word) for word in amounts])
    again, found = read_columns(pd.DataFrame({"x": [form.format("12.50"), "12.5"]}, dtype=str), [reading])
    assert (again["x"].tolist(), found[0].unreadable) == ([12.5, 12.5], 0)
    codes, typed = decide([form.format(f"{row % 20:05d}") for row in range(ROWS)])
    assert codes.levels == tuple(f"{row:05d}" for row in range(20))
    assert typed[1] == "00001"
    assert read_target_column(pd.Series([form.format(1), "2"], name="y"), ReadOptions())[0].tolist() == [1, 2]
    assert decide(["'90s", "'80s", "it's"] * 20)[0].levels == ("'80s", "'90s", "it's")


@pytest.mark.parametrize("word", ["-999", "-999.0", "-999,00", "-999.00"])
def test_a_number_said_to_be_missing_is_so_however_it_is_written(word):
    words = [*(f"{value:.1f}" for value in AMOUNTS), word]
    for sign in ("-999", "-999.0"):
        reading, typed = decide(words, options=ReadOptions(na=(sign,)))
        assert (reading.missing, reading.note) == (1, "")
        assert np.isnan(typed.iloc[-1])
    kept, _ = decide([*words, "-9990", "-999.5"], options=ReadOptions(na=("-999",)))
    assert kept.missing == 1


def test_a_sign_that_is_nowhere_is_said(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("x,y\n" + "".join(f"{value},{'ab'[row % 2]}\n" for row, value in enumerate(AMOUNTS)))
    with pytest.warns(ECRTWarning, match=r"--na \['-99'\]: no cell of a.csv holds that"):
        read_data(file, target=["y"], options=ReadOptions(na=("-99", "b")))


def test_numbers_far_off_that_may_mean_missing_are_said():
    amounts = [f"{abs(value):.0f}" for value in AMOUNTS]
    assert "-999 stands in 4 rows" in decide([*amounts, *["-999"] * 4])[0].note
    assert "9999 stands in 4 rows" in decide([*amounts, *["9999"] * 4])[0].note
    assert "-999 stands in 4 rows" in decide([*(f"{abs(value):.2f}" for value in AMOUNTS), *["-999.0"] * 4])[0].note
    assert decide([*amounts, *["99"] * 4])[0].note == ""
    assert decide([*amounts, "-999"])[0].note == ""


def test_ids_that_occur_twice_are_said():
    persons = [str(1000 + row // 3) for row in range(ROWS)]
    for name in ("patient_id", "id", "customerId"):
        assert "Its name is that of an id, but values occur more than once" in decide(persons, name=name)[0].note
    assert decide(persons, name="weight")[0].note == ""
    assert decide([f"{value:.2f}" for value in AMOUNTS], name="acid id")[0].note == ""
    assert "rows of one id may be both learned from and tested on" in decide(
        [f"P{row // 2}" for row in range(ROWS)], name="patient_id"
    )[0].note  # fmt: skip
    assert decide([f"P{row % 5}" for row in range(ROWS)], name="region_id")[0].note == ""


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M"])
def test_dates_that_rows_are_sorted_by_are_said(form):
    days = DAYS.dt.strftime(form).tolist()
    assert "Rows are sorted by it" in decide(days)[0].note
    assert "Rows are sorted by it" in decide(days[::-1])[0].note
    assert decide(RNG.permutation(days))[0].note == ""
    readings, _ = decide_columns(pd.DataFrame({"x": DAYS}), ReadOptions())
    assert "Rows are sorted by it" in readings[0].note


@pytest.mark.parametrize("form", ["{:.1f}", "{:.1f} s", "{:.1f}e-3", "-{:.1f}"])
def test_numbers_that_rows_are_sorted_by_are_said(form):
    words = [form.format(place // 2 + place / 10 + 10) for place in range(ROWS)]
    assert "Rows are sorted by it" in decide(words)[0].note
    assert "Rows are sorted by it" in decide(words[::-1])[0].note
    assert decide(RNG.permutation(words))[0].note == ""


def test_words_that_look_alike_are_said():
    assert (
        r"'cafe\u0301', 'caf\xe9' look alike; they are read as different levels."
        in decide(["caf\u00e9", "cafe\u0301", "bar"] * 20)[0].note
    )
    assert r"'sure', 's\u200bure' look alike" in decide(["sure", "s\u200bure", "hardly"] * 20)[0].note
    assert decide(["caf\u00e9", "cafe", "bar"] * 20)[0].note == ""


@pytest.mark.parametrize(
    ("zone", "hours"), [("+01", 1), (" GMT+1", 1), (" UTC-03:30", -3.5), ("+0530", 5.5), (" GMT", 0), ("Z", 0)]
)
def test_time_zones_as_databases_and_forms_write_them(zone, hours):
    reading, values = decide([f"{day:%Y/%m/%d %I:%M:%S %p}{zone}" for day in DAYS])
    assert reading.kind == "date"
    assert list(values) == list(DAYS - pd.Timedelta(hours=hours))


def test_no_note_on_values_that_are_not_numbers_if_all_are():
    assert "cannot be read as such" not in decide([str(10**40 * (row + 1)) for row in range(ROWS)])[0].note


def test_words_that_differ_in_capital_letters_only_are_said(tmp_path):
    words = ["Agree", "agree", "Never"] * 20
    assert "'Agree', 'agree' differ in capital letters only" in decide(words)[0].note
    assert decide(["Yes", "yes", "no"] * 20)[0].note == ""
    file = tmp_path / "a.csv"
    file.write_text("x,y\n" + "".join(f"{value},{['Yes', 'yes', '?'][row % 3]}\n" for row, value in enumerate(AMOUNTS)))
    with pytest.warns(ECRTWarning) as said:
        read_data(file, target=["y"])
    (note,) = [str(one.message) for one in said]
    assert note.startswith(
        "Target 'y': 'Yes', 'yes' differ in capital letters only; they are read as different classes."
    )
    assert "'?' is read as a class. Use --na" in note


def test_an_index_with_a_name_is_said(tmp_path):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"x": AMOUNTS, "y": ["a", "b"] * (ROWS // 2)})
    table.to_parquet(tmp_path / "plain.parquet")
    read_data(tmp_path / "plain.parquet", target=["y"])
    table.rename_axis("visit").to_parquet(tmp_path / "a.parquet")
    with pytest.warns(ECRTWarning, match=r"the index \(visit\) is left out"):
        read_data(tmp_path / "a.parquet", target=["y"])


def test_predictions_are_not_written_over_the_file_to_predict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a.csv"
    file.write_text("x\n1\n")
    found = CliRunner().invoke(app, ["predict", "model", str(file), "-o", "a.csv"])
    assert found.exit_code == 1
    assert "a.csv is the file to predict, which would be lost" in found.output
    assert file.read_text() == "x\n1\n"


def test_a_fit_counts_in_words_and_says_which_classes_are_not_tested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = ["a", "b"] * 29 + ["one", "a"]
    lines = [f"{value},{label}" for value, label in zip(AMOUNTS, labels, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *lines]))
    quick = ["--set", "model.demixing=linear", "--set", "model.head=linear"]
    found = CliRunner().invoke(app, ["fit", "a.csv", "--target", "y", *quick])
    words = " ".join(found.output.split())
    assert "60 rows, 1 column, 3 classes, from 1 row of 'one'" in words
    assert "Too rare for a test row: 'one'. The figures do not include such classes." in words


def test_a_new_file_is_read_as_the_first_was(tmp_path):
    first, later = tmp_path / "first.csv", tmp_path / "later.csv"
    rows = [f"{value:.2f}".replace(".", ",") for value in AMOUNTS]
    days = DAYS.dt.strftime("%d/%m/%Y")
    colours = RNG.choice(["red", "blue"], ROWS)
    lines = [";".join(row) for row in zip(rows, days, colours, ["a", "b"] * 30, strict=True)]
    first.write_text("\n".join(["x;day;colour;label", *lines]))
    data = read_data(first, target=["label"])
    plain = json.loads(json.dumps(msgspec.to_builtins(data.columns)))
    columns = typed(plain, list[ColumnReading], "columns")
    assert columns == list(data.columns)
    # Two rows that would be read otherwise if they were judged alone.
    later.write_text("label;colour;day;x\na;red;03/04/2022;1,234\nb;green;05/04/2022;7\n")
    found = read_data(later, columns=columns)
    assert found.X["x"].tolist() == [1.234, 7.0]
    assert found.X["day"].dt.month.tolist() == [4, 4]
    assert list(found.X) == ["x", "day", "colour"]
    assert found.y is None
    assert [one.note for one in found.columns] == ["", "", "50% new levels, such as 'green'"]
    later.write_text("x;day;colour\n1.5;04-05;green\n2.5;2022-04-05;grey\n1;;\n")
    with pytest.raises(InputError, match=r"from the file of the fit: 'x': 67% unreadable, such as '1\.5'; 'day'"):
        read_data(later, columns=columns)
    found = read_data(later, columns=columns, allow_unreadable=True)
    assert found.X["day"].isna().all()
    assert read_data(later, columns=columns[:1], options=ReadOptions(decimal=".")).X["x"].tolist() == [1.5, 2.5, 1]
    later.write_text("x;day\n1;03/04/2022\n")
    with pytest.raises(InputError, match=r"lacks the columns \['colour'\]"):
        read_data(later, columns=columns)
    for wrong in ({"kind": "magic"}, {"missing": "3"}, {"levels": [1]}, {"more": 1}):
        with pytest.raises(BadContentError, match="columns: "):
            typed([plain[0] | wrong], list[ColumnReading], "columns")


def test_numbers_that_may_be_meant_the_other_way_round_are_not_guessed(tmp_path):
    first, later = tmp_path / "first.csv", tmp_path / "later.csv"
    first.write_text("\n".join(["x\tlabel", *(f"{5 + row * 7 % 40},{row:03d}\t{'ab'[row % 2]}" for row in range(40))]))
    columns = read_data(first, target=["label"]).columns
    later.write_text("x\n5.022\n6.022\n900\n")
    with pytest.raises(InputError, match=r"'x': 67% unreadable, such as '5\.022'. Correct the file, give its"):
        read_data(later, columns=columns)
    assert read_data(later, columns=columns, options=ReadOptions(decimal=",")).X["x"].tolist() == [5022, 6022, 900]
    assert read_data(later, columns=columns, options=ReadOptions(decimal=".")).X["x"].tolist() == [5.022, 6.022, 900]
    for settled, value in {"5,000": 5000, "0.5": 0.5}.items():
        later.write_text(f"x\tz\n5.022\t1\n{settled}\t2\n")
        assert read_data(later, columns=columns).X["x"].tolist() == [5.022, value]


@pytest.mark.parametrize("fitted", [".", ",", ""])
@pytest.mark.parametrize("later", [".", ","])
def test_another_decimal_sign_in_a_new_file_is_not_guessed(tmp_path, fitted, later):
    first, new = tmp_path / "first.csv", tmp_path / "later.csv"
    numbers = [f"{row * 7 % 30 + 10}{fitted}{row % 9 if fitted else ''}" for row in range(40)]
    first.write_text("\n".join(["x\tlabel", *(f"{number}\t{'ab'[row % 2]}" for row, number in enumerate(numbers))]))
    columns = read_data(first, target=["label"]).columns
    assert columns[0].decimal == fitted
    new.write_text(f"x\tz\n10{later}5\t1\n11{later}25\t2\n\t3\n")
    if later == (fitted or "."):
        assert read_data(new, columns=columns).X["x"].tolist()[:2] == [10.5, 11.25]
    else:
        with pytest.raises(InputError, match="'x': 67% unreadable"):
            read_data(new, columns=columns)


def test_columns_separated_by_spaces_are_named_so(tmp_path):
    (tmp_path / "a.csv").write_text("a b label\n1 2 x\n3 4 y\n")
    with pytest.raises(InputError, match="Separate columns by commas, semicolons or tabs"):
        read_data(tmp_path / "a.csv", target=["label"])


def test_a_target_is_missing_only_where_it_is_empty(tmp_path):
    file = tmp_path / "a.csv"
    words = ["NA", "nan", "null", "", "-999"] * 6
    file.write_text("x,label\n" + "\n".join(f"{place / 7},{word}" for place, word in enumerate(words)))
    assert read_data(file, target=["label"]).y[:5].tolist() == ["NA", "nan", "null", None, "-999"]
    y = read_data(file, target=["label"], options=ReadOptions(na=("-999",))).y
    assert y[:5].tolist() == ["NA", "nan", "null", None, None]
    columns = read_data(file, target=["label"]).columns
    file.write_text("x,label\n0.5,1\n0.7,2\n")  # few rows, whose labels look like numbers
    assert read_data(file, target=["label"], columns=columns).y.tolist() == ["1", "2"]
    file.write_text("x,label\n" + "\n".join(f"{place / 7},{place % 3:03d}" for place in range(30)))
    assert read_data(file, target=["label"]).y[:3].tolist() == ["000", "001", "002"]


@pytest.mark.parametrize(("words", "labels", "said"), [
    (["1E1", "1E2"], ["1E1", "1E2"], "'1E1' would become 10: labels stay as they are written"),
    (["1.1", "1.2", "1.10"], ["1.1", "1.2", "1.10"], "'1.1' and '1.10' would be the same number"),
    (["1,1", "1,2", "1,10"], ["1,1", "1,2", "1,10"], "'1,1' and '1,10' would be the same number"),
    (["1.0", "2.0", "1"], [1, 2, 1], ""), (["+1", "-1", "1"], [1, -1, 1], ""),
    (["1.000e+00", "2.000e+00"], [1, 2], ""), (["1.50", "2.00", "2.25"], [1.5, 2, 2.25], ""),
])  # fmt: skip
def test_labels_that_are_numbers_by_chance_stay_as_they_are_written(words, labels, said):
    column = pd.Series(words * 10, name="y")
    found, reading = read_target_column(column, ReadOptions(), separator=";" if "," in words[0] else ",")
    assert found.tolist() == labels * 10
    assert said in reading.note
    assert bool(reading.note) == bool(said)
    again, _ = read_target_column(column[:2], ReadOptions(), reading=reading)
    assert again.tolist() == labels[:2]
    if said:
        given = ReadOptions(types={"y": "number"})
        assert read_target_column(column, given, separator=";")[0].dtype.kind in "if"
    many = pd.Series([f"{value:.1f}" for value in AMOUNTS] + ["1.1", "1.10"], name="y")
    assert read_target_column(many, ReadOptions())[0].dtype == np.float64


def test_files_that_are_packed_piped_or_from_other_programs(tmp_path, monkeypatch):
    text = "x,label\n" + "\n".join(f"{value:.2f},{'ab'[place % 2]}" for place, value in enumerate(AMOUNTS))
    expected = AMOUNTS.round(2).tolist()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert read_data(Path("-"), target=["label"]).X["x"].tolist() == expected
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", text)
        archive.writestr("b.csv", text)
    with pytest.raises(InputError, match=r"holds 2 files \(a.csv, b.csv\): unpack it"):
        read_data(tmp_path / "two.zip", target=["label"])
    lines = text.split("\n")
    rows = "\n".join([lines[0], *(f"{place + 1},{line}" for place, line in enumerate(lines[1:]))])
    (tmp_path / "r.csv").write_text(rows)  # as write.table of R has it
    data = read_data(tmp_path / "r.csv", target=["label"])
    assert data.X["x"].tolist() == expected
    (tmp_path / "h.csv").write_text(text.replace("x,label", "# x,label"))
    assert read_data(tmp_path / "h.csv", target=["label"]).X["x"].tolist() == expected
    (tmp_path / "wrong.csv").write_bytes("x,label\n1,\u0159\n".encode("cp1250"))
    with pytest.raises(InputError, match=r"is not written in utf-8.*--encoding"):
        read_data(tmp_path / "wrong.csv", target=["label"], options=ReadOptions(encoding="utf-8"))
    with pytest.raises(InputError, match="no encoding 'klingon'"):
        read_data(tmp_path / "wrong.csv", target=["label"], options=ReadOptions(encoding="klingon"))
    (tmp_path / "bare.csv").write_bytes(text.encode("utf-16-le"))
    assert read_data(tmp_path / "bare.csv", target=["label"]).X["x"].tolist() == expected
    (tmp_path / "more.csv").write_text(text + "\n1.5,a,b\n")
    with pytest.raises(InputError, match="line 62 has 3 values, but there are 2 columns"):
        read_data(tmp_path / "more.csv", target=["label"])


def test_options_of_the_command(tmp_path):
    file = tmp_path / "a.csv"
    text = "\n".join(f"{place % 4};{'ab'[place % 2]}" for place in range(40))
    file.write_text("code;label\n" + text)
    quick = ["--set", "model.demixing=none", "--set", "model.head=linear", "--set", "test_size=0"]
    fit = ["fit", str(file), "--target", "label", "-o", str(tmp_path / "m"), *quick]
    assert CliRunner().invoke(app, [*fit, "--types", "code=category"]).exit_code == 0
    new = tmp_path / "new.csv"
    new.write_text("code\n" + "\n".join(["7"] * 3))
    predict = ["predict", str(tmp_path / "m"), str(new), "-o", str(tmp_path / "p.csv")]
    result = CliRunner().invoke(app, predict)
    assert result.exit_code == 1
    assert "'code': 100% new levels, such as '7'" in result.stderr
    assert CliRunner().invoke(app, [*predict, "--allow-unreadable"]).exit_code == 0
    for option, message in (
        (["--types", "code"], "use COL=TYPE"), (["--types", "code=colour"], "use number, category, date"),
        (["--types", "cod=number"], "did you mean 'code'"), (["--decimal", ";"], "a point or a comma"),
    ):  # fmt: skip
        result = CliRunner().invoke(app, [*fit, *option])
        assert result.exit_code == 1
        assert message in result.stderr
    for command in ("compare", "diagnose"):
        result = CliRunner().invoke(app, [command, str(file), "--target", "label", "--decimal", ";"])
        assert "a point or a comma" in result.stderr


def test_typed_files_are_read_like_text():
    table = pd.DataFrame({
        "n": RNG.integers(0, 9, ROWS), "row": np.arange(ROWS), "truth": RNG.random(ROWS) > 0.5,
        "day": DAYS,
        "kind": pd.Categorical(RNG.choice(["p", "q"], ROWS)), "gap": np.where(AMOUNTS > 100, np.nan, AMOUNTS),
    })  # fmt: skip
    readings, typed = decide_columns(table, ReadOptions())
    assert [reading.kind for reading in readings] == ["number", "identifier", "category", "date", "category", "number"]
    assert [str(kind) for kind in typed.dtypes] == ["float64", "category", "datetime64[us]", "category", "float64"]
    assert readings[5].missing == typed["gap"].isna().sum() > 0
    written = pd.read_csv(io.StringIO(table.to_csv(index=False)), dtype=str, keep_default_na=False)
    again, found = read_columns(written, readings)
    pd.testing.assert_frame_equal(again, typed)
    assert [one.name for one in found if one.missing or one.note] == ["gap"]


def test_columns_kept_aside_have_their_type_and_are_not_judged(tmp_path):
    file = tmp_path / "a.csv"
    lines = [
        f"{value:.2f},{day},the household of family number {place},{place},,{'ab'[place % 2]}"
        for place, (value, day) in enumerate(zip(AMOUNTS, DAYS.dt.strftime("%d.%m.%Y"), strict=True))
    ]
    file.write_text("\n".join(["x,day,family,row,nothing,label", *lines]))
    data = read_data(file, target=["label"], aside=["day", "family", "row"])
    assert list(data.X) == ["x"]
    assert data.aside["day"].is_monotonic_increasing
    assert data.aside["row"].tolist() == list(range(ROWS))
    assert data.aside["family"].nunique() == ROWS
    assert data.take(np.array([3])).aside["row"].tolist() == [3]
    with pytest.raises(InputError, match=r"\['nothing'\] hold nothing"):
        read_data(file, target=["label"], aside=["nothing", "family"])


def test_a_text_column_of_a_typed_file_may_begin_with_a_gap():
    table = pd.DataFrame({"x": pd.Series([None, "1,5", "2,5", ""] * 10, dtype="str"), "empty": pd.Series([""] * 40)})
    readings, typed = decide_columns(table, ReadOptions(types={"empty": "number"}))
    assert [(one.kind, one.missing) for one in readings] == [("number", 20), ("left out", 40)]
    assert typed["x"].tolist()[1:3] == [1.5, 2.5]


@pytest.mark.parametrize("above", ["", "A title\n\n", "# one\n# two\n", "sep=,\n", "\n", "# x,label\n"])
def test_errors_name_the_line_of_the_file(tmp_path, above):
    file = tmp_path / "a.csv"
    named = "" if "label" in above else "x,label\n"
    file.write_text(f"{above}{named}1,a\n2,b\n3\n")
    line = file.read_text().split("\n").index("3") + 1
    with pytest.raises(InputError, match=f"line {line} has 1 values, but there are 2 columns"):
        read_data(file, target=["label"])


def test_column_names_that_come_again_are_left_out(tmp_path):
    rows = "".join(f"{value:.3f},{'ab'[row % 2]}\n" for row, value in enumerate(AMOUNTS))
    file = tmp_path / "a.csv"
    file.write_text(f"x,kind\n{rows}x, kind\n{rows}")
    with pytest.warns(ECRTWarning, match="1 row that repeats the column names: left out"):
        data = read_data(file, target=["kind"])
    assert sorted(set(data.y)) == ["a", "b"]
    assert len(data.X) == 2 * ROWS
    assert data.columns[0].unreadable == 0


@pytest.mark.parametrize("closed_later", [True, False])
def test_a_quote_left_open_loses_no_rows(tmp_path, closed_later):
    note = '"in words"' if closed_later else "in words"
    rows = [f"{value:.3f},{note},{'ab'[row % 2]}" for row, value in enumerate(AMOUNTS)]
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["x,note,kind", *rows[:30], '1.5,"in words,a', *rows[30:]]))
    with pytest.raises(InputError, match="a quote that is opened in line 32 is not closed there"):
        read_data(file, target=["kind"])


@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet"])
def test_long_ids_survive_a_gap(tmp_path, kind):
    file = tmp_path / f"a.{kind}"
    numbers = [None, *(9_007_199_254_740_993 + 2 * row for row in range(1, ROWS))]
    records = [
        {"account": number, "x": value, "kind": "ab"[row % 2]}
        for row, (number, value) in enumerate(zip(numbers, AMOUNTS.tolist(), strict=True))
    ]
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(records), file)
    else:
        lines = [json.dumps(record) for record in records]
        file.write_text("\n".join(lines) if kind == "jsonl" else f"[{','.join(lines)}]")
    data = read_data(file, target=["kind"], ids=["account"])
    assert data.ids["account"].iloc[1:].tolist() == numbers[1:]
    assert pd.isna(data.ids["account"].iloc[0])
    assert data.columns[0].kind == "number"


def test_predictions_follow_a_link_and_take_no_place_of_a_pipe(tmp_path):
    table = pd.DataFrame({"row": [0], "predicted": ["a"]})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "elsewhere" / "kept.csv")
    for _ in range(2):
        write_predictions(table, tmp_path / "link.csv")
        assert (tmp_path / "link.csv").is_symlink()
        assert (tmp_path / "elsewhere" / "kept.csv").read_text() == "row,predicted\n0,a\n"
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="it is a pipe or a device"):
        write_predictions(table, tmp_path / "pipe.csv")
    assert (tmp_path / "pipe.csv").is_fifo()


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_predictions_are_written_with_every_digit(tmp_path, ending):
    numbers = [1 / 3, 1e-11, 2.5e-300, 1.0, 123456789.123456789]
    ids = pd.Series(["é", None, 3, pd.Timestamp("2021-05-30"), 2**60 + 1], dtype=object)
    table = pd.DataFrame({"id": ids if ending == "jsonl" else ids.astype(str), "predicted": 7, "p_7": numbers})
    write_predictions(table, tmp_path / f"p.{ending}")
    if ending == "jsonl":
        lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
        assert [line["id"] for line in lines] == ["é", None, 3, "2021-05-30 00:00:00", 2**60 + 1]
        assert lines[0] == {"id": "é", "predicted": 7, "p_7": 1 / 3}
        found = [line["p_7"] for line in lines]
    else:
        path = tmp_path / f"p.{ending}"
        found = (pd.read_csv(path, dtype=str) if ending == "csv" else pd.read_parquet(path))["p_7"].map(float)
    assert list(found) == numbers


def test_what_is_of_no_known_kind_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    with pytest.raises(InputError, match="cannot tell what kind of file it is"):
        read_data(tmp_path / "pipe", target=["x"])
