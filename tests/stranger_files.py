"""Files as strangers have them, each with what is true of it, for the test of a stranger's day.

``python tests/stranger_files.py FOLDER`` writes them to a folder. All have the same hidden truth:
the class is told by one number (or, where a file is about categories or dates, by these), so that a model which reads
the file rightly is nearly always right, and one that does not is not.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import sys
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

ROWS = 60


@dataclass(frozen=True, kw_only=True)
class StrangerFile:
    """A file and the truth about it.

    Attributes
    ----------
    name, content : of the file.
    kinds : of each column that is not the target; those that are not numbers, categories or dates are left out.
    task : that is to be found.
    options : of ``ecrt fit``, beside the target.
    target : its column.
    ids : what ``ecrt predict`` must write in the first column, if an id is named.
    labels : the classes as they must be printed.
    error : of a file that cannot be used: what the one line must say.
    said : what a note must say.
    amounts : the target of a regression, as numbers.
    learnable : whether the file tells the target.
    """

    name: str
    content: bytes = b""
    kinds: dict[str, str] = field(default_factory=dict)
    task: str = "classification"
    options: tuple[str, ...] = ()
    target: str = "label"
    ids: tuple[str, ...] = ()
    labels: tuple[str, ...] = ("no", "yes")
    error: str = ""
    said: str = ""
    amounts: tuple[float, ...] = ()
    learnable: bool = True


def _csv(header: str, rows: list[list[str]], separator: str = ",", end: str = "\n") -> str:
    return end.join([header, *(separator.join(row) for row in rows)]) + end


def _german(number: float, digits: int = 2) -> str:
    return f"{number:,.{digits}f}".replace(",", "#").replace(".", ",").replace("#", ".")


def make_files() -> list[StrangerFile]:
    """All files."""
    rng = np.random.default_rng(7)
    positive = np.arange(ROWS) % 2 == 1
    signal = np.where(positive, 4.0, 0.0) + rng.normal(size=ROWS) * 0.4 + 5
    noise = rng.normal(size=ROWS) * 2 + 5
    label = np.where(positive, "yes", "no")
    # Dates: classes a year apart; categories: of two groups.
    dates = pd.to_datetime(np.where(positive, "2021-02-01", "2023-02-01")) + pd.to_timedelta(
        rng.integers(0, 330, ROWS), unit="D"
    )
    dates = pd.Series(dates) + pd.to_timedelta(rng.integers(0, 86_400, ROWS), unit="s")
    colour = np.where(positive, rng.choice(["red", "blue"], ROWS), rng.choice(["green", "grey"], ROWS))
    found: list[StrangerFile] = []

    def add(content: str | bytes, truth: StrangerFile, encoding: str = "utf-8") -> None:
        found.append(replace(truth, content=content if isinstance(content, bytes) else content.encode(encoding)))

    def columns(*parts: object) -> list[list[str]]:
        return [list(map(str, row)) for row in zip(*parts, strict=True)]

    x, z = [f"{value:.3f}" for value in signal], [f"{value:.2f}" for value in noise]
    both = {"x": "number", "z": "number"}
    plain = _csv("x,z,label", columns(x, z, label))

    # How numbers are written.
    german = [value.replace(".", ",") for value in x]
    add(_csv("x;z;label", columns(german, [v.replace(".", ",") for v in z], label), ";"),
        StrangerFile(name="german.csv", kinds=both))  # fmt: skip
    thousands = [[_german(v * 1000) for v in values] for values in (signal, noise)]
    add(_csv("x;umsatz;label", columns(*thousands, label), ";"),
        StrangerFile(name="german_thousands.csv", kinds={"x": "number", "umsatz": "number"}))  # fmt: skip
    french = [f"{v * 1000:,.1f}".replace(",", "\u202f").replace(".", ",") for v in signal]
    add(_csv("prix;z;label", columns(french, german, label), ";"),
        StrangerFile(name="french.csv", kinds={"prix": "number", "z": "number"}))  # fmt: skip
    add(_csv("price,z,label", columns([f'"${v * 1000:,.2f}"' for v in signal], z, label)),
        StrangerFile(name="dollars.csv", kinds={"price": "number", "z": "number"}))  # fmt: skip
    add(_csv("price;z;label", columns([f"{_german(v)} EUR" for v in signal], german, label), ";"),
        StrangerFile(name="euros.csv", kinds={"price": "number", "z": "number"}))  # fmt: skip
    short = [f"${v / 8:.2f}M" if v > 8 else f"${v * 125:.0f}K" for v in signal]
    add(_csv("funding,z,label", columns(short, z, label)),
        StrangerFile(name="dollars_in_short.csv", kinds={"funding": "number", "z": "number"}))  # fmt: skip
    add(_csv("share,z,label", columns([f"{v * 5:.0f}%" for v in signal], z, label)),
        StrangerFile(name="percent.csv", kinds={"share": "number", "z": "number"}))  # fmt: skip
    balance = [f'"({-v:,.2f})"' if v < 0 else f'"{v:,.2f}"' for v in (signal - 7) * 1000]
    add(_csv("balance,z,label", columns(balance, z, label)),
        StrangerFile(name="accounts.csv", kinds={"balance": "number", "z": "number"}))  # fmt: skip
    add(_csv("x,z,label", columns([f"{v * 1e-12:.4e}" for v in signal], z, label)),
        StrangerFile(name="scientific.csv", kinds=both))  # fmt: skip
    add(_csv("x,z,label", columns([f'"=""{word}"""' for word in x], z, label)),
        StrangerFile(name="excel_text.csv", kinds=both))  # fmt: skip
    lakhs = [f'"{word[:2]},{word[2:4]},{word[4:]}"' for word in (f"{v * 9e5:.0f}" for v in signal)]
    add(_csv("x,z,label", columns(lakhs, z, label)),
        StrangerFile(name="indian.csv", kinds=both))  # fmt: skip
    below = ["<5" if place % 3 == 0 else f"{v:.0f}.5" for place, v in enumerate(signal)]
    add(_csv("x,z,label", columns(below, z, label)),
        StrangerFile(name="below_a_limit.csv", kinds={"x": "category", "z": "number"}, learnable=False,
                     said="some cannot be read as such, as '<5'"))  # fmt: skip
    strays = [word if place % 20 else ("n.d.", "inf", "see note")[place // 20] for place, word in enumerate(x)]
    add(_csv("x,z,label", columns(strays, z, label)),
        StrangerFile(name="stray_words.csv", kinds=both,
                     said="3 values such as 'n.d.' are read as missing"))  # fmt: skip
    add(_csv("x,z,label", columns([hex(int(v * 100)) for v in signal], z, label)),
        StrangerFile(name="hexadecimal.csv", kinds=both))  # fmt: skip
    mixed = [f"{v:.2f} EUR" if place % 3 else f"{v:.2f} USD" for place, v in enumerate(signal)]
    add(_csv("x,z,label", columns(mixed, z, label)),
        StrangerFile(name="two_currencies.csv", kinds={"x": "left out", "z": "number"}, learnable=False,
                     said="several units (EUR, USD)"))  # fmt: skip
    gaps = [("", "NA", "-", "#N/A")[place % 4] if place % 10 == 0 else word for place, word in enumerate(x)]
    nines = ["-999" if place % 9 == 0 else word for place, word in enumerate(z)]
    add(_csv("x,z,label", columns(gaps, nines, label)),
        StrangerFile(name="gaps.csv", kinds=both, options=("--na", "-999")))  # fmt: skip

    # Dates and times.
    for name, form in {
        "german": "%d.%m.%Y", "american": "%m/%d/%Y %I:%M %p", "iso": "%Y-%m-%dT%H:%M:%S+02:00", "named": "%d %B %Y",
        "compact": "%Y%m%d",
    }.items():  # fmt: skip
        add(_csv("day|z|label", columns(dates.dt.strftime(form), z, label), "|"),
            StrangerFile(name=f"dates_{name}.csv", kinds={"day": "date", "z": "number"}))  # fmt: skip
    births = [f"{1 + row % 28:02d}.{1 + row % 12:02d}.{int(v * 10 - 5):02d}" for row, v in enumerate(signal)]
    add(_csv("born,z,label", columns(births, z, label)),
        StrangerFile(name="dates_of_two_digits.csv", kinds={"born": "date", "z": "number"},
                     said="Years of two digits are read as 19"))  # fmt: skip
    both_ways = dates.dt.strftime("%d/%m/%Y").where(dates.dt.day <= 12, "03/04/" + dates.dt.strftime("%Y"))
    add(_csv("day,z,label", columns(both_ways, z, label)),
        StrangerFile(name="dates_either_way.csv", kinds={"day": "date", "z": "number"},
                     said="no value tells which is which"))  # fmt: skip
    for name, form, other in (
        ("30052021", "%d%m%Y", "date"), ("sas", "%d%b%Y:%H:%M:%S", "date"), ("two_ways", "%d.%m.%Y", "category")
    ):  # fmt: skip
        days = [f"{day:{'%Y-%m-%d' if other == 'category' and day.day % 2 else form}}" for day in dates.dt.normalize()]
        add(_csv("day,z,label", columns(days, z, label)),
            StrangerFile(name=f"dates_{name}.csv", kinds={"day": other, "z": "number"}, learnable=other == "date",
                         said="" if other == "date" else "levels"))  # fmt: skip
    wide = [f"\u20a9{v * 1000:,.0f}".translate({48 + digit: 0xFF10 + digit for digit in range(10)}) for v in signal]
    add(_csv("x;z;label", columns(wide, z, label), ";"),
        StrangerFile(name="wide_digits.csv", kinds=both))  # fmt: skip
    times = [f"{int(v * 1.5):02d}:{place % 60:02d}" for place, v in enumerate(signal)]
    add(_csv("at,z,label", columns(times, z, label)),
        StrangerFile(name="times.csv", kinds={"at": "number", "z": "number"}))  # fmt: skip
    laps = [divmod(int(v * 500), 60) for v in signal]
    finish = [f"{m // 60}:{m % 60:02d}:{s:02d}" if m >= 60 else f"{m}:{s:02d}" for m, s in laps]
    add(_csv("finish,z,label", columns(finish, z, label)),
        StrangerFile(name="durations.csv", kinds={"finish": "number", "z": "number"},
                     said="is read as minutes and seconds"))  # fmt: skip

    # Names and counters of rows, codes, words.
    order = np.argsort(label, kind="stable")
    add(_csv(",noise,label", columns(range(ROWS), np.array(z)[order], label[order])),
        StrangerFile(name="pandas_index.csv", kinds={"Unnamed: 0": "identifier", "noise": "number"}, learnable=False,
                     said="'Unnamed: 0' is left out"))  # fmt: skip
    add(_csv("case,x,label", columns(rng.permutation(ROWS) + 1, x, label)),
        StrangerFile(name="shuffled_counter.csv", kinds={"case": "identifier", "x": "number"}))  # fmt: skip
    numbers = tuple(f"{value:03d}" for value in rng.permutation(ROWS))
    add(_csv("number,x,label", columns(numbers, x, label)),
        StrangerFile(name="leading_zeros.csv", kinds={"x": "number"}, options=("--id", "number"),
                     ids=numbers))  # fmt: skip
    long_ids = [str(9_007_199_254_740_993 + 2 * int(v)) for v in rng.integers(0, 10**6, ROWS)]
    phones = [f"+49 30 {value}" for value in rng.integers(100_000, 999_999, ROWS)]
    add(_csv("account,phone,x,label", columns(long_ids, phones, x, label)),
        StrangerFile(name="long_ids.csv", kinds={"account": "identifier", "phone": "identifier",
                     "x": "number"}))  # fmt: skip
    codes = np.where(positive, rng.choice(["01067", "02977"], ROWS), rng.choice(["10115", "20095"], ROWS))
    add(_csv("plz;z;label", columns(codes, z, label), ";"),
        StrangerFile(name="zip_codes.csv", kinds={"plz": "category", "z": "number"}))  # fmt: skip
    smokes = np.where(positive, rng.choice(["Yes", "yes"], ROWS), rng.choice(["No", "NO"], ROWS))
    add(_csv("smokes,z,label", columns(smokes, z, np.where(positive, "ill", "well"))),
        StrangerFile(name="booleans.csv", kinds={"smokes": "category", "z": "number"},
                     labels=("ill", "well")))  # fmt: skip
    add(_csv("farbe;z;label", columns(np.char.add(colour, "\u00fc\u00df"), z, label), ";"),
        StrangerFile(name="latin1.csv", kinds={"farbe": "category", "z": "number"}, said="cp1252"),
                     "latin-1")  # fmt: skip
    add(_csv("colour\tz\tlabel", columns(colour, z, label), "\t"),
        StrangerFile(name="utf16.txt", kinds={"colour": "category", "z": "number"}), "utf-16")  # fmt: skip
    add(_csv("x,z,label", columns(x, z, label), end="\r\n"),
        StrangerFile(name="bom.csv", kinds=both), "utf-8-sig")  # fmt: skip

    # Labels.
    add(_csv("x,z,label", columns(x, z, np.where(positive, "NA", "None"))),
        StrangerFile(name="labels_na.csv", kinds=both, labels=("NA", "None")))  # fmt: skip
    add(_csv("x,z,label", columns(x, z, np.where(positive, "2.0", "1.0"))),
        StrangerFile(name="labels_floats.csv", kinds=both, labels=("1", "2")))  # fmt: skip
    add(_csv("x,z,label", columns(x, z, np.where(positive, "1E1", "1E2"))),
        StrangerFile(name="labels_codes.csv", kinds=both, labels=("1E1", "1E2"),
                     said="'1E1' would become 10"))  # fmt: skip
    add(_csv("x,z,label", columns(x, z, np.where(positive, "1.1", "1.10"))),
        StrangerFile(name="labels_versions.csv", kinds=both, labels=("1.1", "1.10"),
                     said="'1.1' and '1.10' would be the same number"))  # fmt: skip
    blanks = [word if place % 12 else "" for place, word in enumerate(np.where(positive, "[/b]", "not bold"))]
    add(_csv("x,z,label", columns(x, z, blanks)),
        StrangerFile(name="labels_markup.csv", kinds=both, labels=("[/b]", "not bold"),
                     said="5 rows without a label are left out"))  # fmt: skip
    add(_csv("x,z,label", [*columns(x, z, label), ["Total", "", str(len(label))]]),
        StrangerFile(name="footer.csv", kinds=both, said=f"as a footer has: row {len(label) + 1}."))  # fmt: skip
    add(_csv("x,z,preis", columns(x, z, [f'"{_german(v * 1000 + 1)} EUR"' for v in signal])),
        StrangerFile(name="price_to_learn.csv", kinds=both, target="preis", task="regression",
                     amounts=tuple(signal * 1000)))  # fmt: skip
    ages = [str(int(v * 30)) for v in signal]
    add(_csv("x,z,age", columns(x, z, ages)),
        StrangerFile(name="age_to_learn.csv", target="age",
                     error="--task classification or --task regression"))  # fmt: skip
    add(_csv("x,z,age", columns(x, z, ages)),
        StrangerFile(name="age_said.csv", kinds=both, target="age", task="regression", amounts=tuple(signal),
                     options=("--task", "regression")))  # fmt: skip

    # The shape of the file.
    add("Report of 30.05.2021;;\nfor the board;;\n\n" + _csv("x;z;label", columns(x, z, label), ";"),
        StrangerFile(name="title.csv", kinds=both, said="Report of 30.05.2021"))  # fmt: skip
    add("sep=;\r\n" + _csv("x;z;label;;", columns(german, german, label, [""] * ROWS, [""] * ROWS), ";", "\r\n"),
        StrangerFile(name="excel_export.csv", kinds=both))  # fmt: skip
    add("# measured in May\n# x, in mm\n" + plain + "# end\n", StrangerFile(name="comments.csv", kinds=both, said="#"))
    lines = plain.split("\n")
    add("\r\n".join(lines[:30]) + "\r" + "\n".join(lines[30:]), StrangerFile(name="line_ends.csv", kinds=both))
    notes = [f'"{word},\n""{word}"""' for word in colour]
    add(_csv("note,z,label", columns(notes, z, label)),
        StrangerFile(name="quoted_newlines.csv", kinds={"note": "category", "z": "number"}))  # fmt: skip
    wide = [[f"{value:.1f}" for value in row] for row in rng.normal(size=(ROWS, 150))]
    add(_csv(",".join(["label", "x", *(f"w{place}" for place in range(150)), "void"]),
             [[word, one, *row, ""] for word, one, row in zip(label, x, wide, strict=True)]),
        StrangerFile(name="wide.csv", kinds={"x": "number", "w149": "number", "void": "left out"}))  # fmt: skip
    add(_csv("x,x,label", columns(x, z, label)), StrangerFile(name="twice.csv", error="['x'] occur more than once"))
    add(_csv(",".join([x[0], z[0], "no"]), columns(x, z, label)),
        StrangerFile(name="no_header.csv", error="Put the names of columns above them"))  # fmt: skip
    add("x,z,label\n", StrangerFile(name="header_only.csv", error="no rows"))
    add(_csv("label", columns(label)), StrangerFile(name="one_column.csv", error="no column to learn from"))
    add(plain.replace("yes\n", "yes\0\n", 1), StrangerFile(name="nul_bytes.csv", error="NUL bytes"))
    add(plain + "7.5,8\n", StrangerFile(name="cut_off.csv", error="line 62 has 2 values"))

    copied = [line for line, rare in zip(columns(x, z, label), positive, strict=True) for _ in range(4 if rare else 1)]
    add(_csv("x,z,label", copied),
        StrangerFile(name="oversampled.csv", kinds=both, said="90 of 150 rows are copies of others"))  # fmt: skip

    # Kinds of files.
    table = pd.DataFrame({"x": signal, "z": noise, "colour": colour, "label": label})
    kinds = both | {"colour": "category"}
    add(table.to_json(orient="records"), StrangerFile(name="records.json", kinds=kinds))
    lines = [json.dumps(record) for record in table.to_dict("records")]
    add("\n".join(lines), StrangerFile(name="lines.jsonl", kinds=kinds))
    sheet = io.BytesIO()
    table.assign(day=dates.dt.normalize()).to_excel(sheet, index=False)
    add(sheet.getvalue(), StrangerFile(name="sheet.xlsx", kinds=kinds | {"day": "date"}))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("data/plain.csv", plain)
    add(packed.getvalue(), StrangerFile(name="plain.zip", kinds=both))
    add(gzip.compress(plain.encode(), mtime=0), StrangerFile(name="plain.csv.gz", kinds=both))
    add(bz2.compress(plain.encode()), StrangerFile(name="plain.csv.bz2", kinds=both))
    add(b"\xd0\xcf\x11\xe0", StrangerFile(name="old_sheet.xls", error="Save it as CSV"))
    return found


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    for file in make_files():
        (place / file.name).write_bytes(file.content)
