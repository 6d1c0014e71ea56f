"""Single words as numbers, times and dates."""

from __future__ import annotations

import numpy as np
import pytest

from ecrt.data.columns import WrittenNumbers, parse

NAN = float("nan")


@pytest.mark.parametrize(
    ("word", "point", "comma", "unit"),
    [
        ("12", 12, 12, ""), ("-1.5", -1.5, NAN, ""), ("1,5", NAN, 1.5, ""), ("+.5", 0.5, NAN, ""),
        (".5 kg", 0.5, NAN, "kg"), (".e0", NAN, NAN, ""), ("12.", 12, NAN, ""), (".", NAN, NAN, ""),
        ("2e3", 2e3, 2e3, ""),
        ("1.234", 1.234, 1234, ""), ("-1,234", -1234, -1.234, ""), ("1.234.567", NAN, 1234567, ""),
        ("1,234.5", 1234.5, NAN, ""), ("1.234,5", NAN, 1234.5, ""), ("0.123", 0.123, NAN, ""),
        ("1.23e4", 1.23e4, NAN, ""), ("1.234e5", 1.234e5, NAN, ""),
        ("1 234,5", NAN, 1234.5, ""), ("1'234.5", 1234.5, NAN, ""), ("12,34,567", 1234567, NAN, ""),
        ("12.34.567", NAN, NAN, ""),
        ("₹1,00,000.50", 100000.5, NAN, "₹"), ("10,06,28", NAN, NAN, ""),
        ("1_000", NAN, NAN, ""),
        ("$1,200.50", 1200.5, NAN, "$"), ("Fr. 3.50", 3.5, NAN, "Fr."), ("3,50 €", NAN, 3.5, "€"),
        ("12.5%", 12.5, NAN, "%"),
        ("-$3.5", -3.5, NAN, "$"), ("(3.5)", -3.5, NAN, ""), ("3.5-", -3.5, NAN, ""), ("€ 93,-", NAN, 93, "€"),
        ("93.-", 93, NAN, ""), ("-93,-- EUR", NAN, -93, "EUR"), ("CHF 1'093.\u2014", 1093, NAN, "CHF"),
        ("NT$1,200.50", 1200.5, NAN, "NT$"), ("xy 5", NAN, NAN, ""), ("xy. 5", NAN, NAN, ""), ("(3.5", NAN, NAN, ""),
        ("$2.1M", 2.1e6, NAN, "$"), ("-$859K", -859e3, -859e3, "$"), ("EUR 2,5 Mio.", NAN, 2.5e6, "EUR"),
        ("3.5 bn USD", 3.5e9, NAN, "USD"), ("2m€", 2e6, 2e6, "€"), ("12 K", 12, 12, "K"), ("$5/h", 5, 5, "$ /h"),
        ("\u22123.5", -3.5, NAN, ""), ("5 kg", 5, 5, "kg"), ("Room 5", NAN, NAN, ""), ("nan", NAN, NAN, ""),
        ("", NAN, NAN, ""),
    ],
)  # fmt: skip
def test_words_as_numbers(word, point, comma, unit):
    found = WrittenNumbers.of(np.array([word], dtype=object))
    np.testing.assert_equal([found.values["."][0], found.values[","][0]], [point, comma])
    assert found.units[0] == unit


def test_numbers_fit_a_way_of_writing_or_are_none():
    words = np.array(["1,234.5", "1'234.5", "7", "7 KG", "7%"], dtype=object)
    found = WrittenNumbers.of(words)
    np.testing.assert_equal(found.read(".", ",", "kg"), [1234.5, NAN, 7, 7, NAN])
    np.testing.assert_equal(found.read("", ",'", ""), [1234.5, 1234.5, 7, NAN, NAN])
    np.testing.assert_equal(found.read(".", "", "%"), [NAN, NAN, NAN, NAN, 7])  # 0.07 is not 7 %
    sizes = WrittenNumbers.of(np.array(["$7", "7", "7K", "7 M", "7 m", "$7k"], dtype=object))
    np.testing.assert_equal(sizes.read(".", "", "$"), [7, 7, 7000, 7e6, NAN, 7000])
    np.testing.assert_equal(sizes.read(".", "", "K, M, bn"), [NAN, 7, 7000, 7e6, NAN, NAN])
    np.testing.assert_equal(sizes.read(".", "", "K"), [NAN, NAN, 7, NAN, NAN, NAN])  # kelvin or thousands
    units = WrittenNumbers.of(np.array(["7 mW", "7 MW", "7 mw", "7 kW", "7 KW"], dtype=object))
    np.testing.assert_equal(units.read(".", "", "mW"), [7, NAN, 7, NAN, NAN])
    np.testing.assert_equal(units.read(".", "", "kW"), [NAN, NAN, NAN, 7, 7])
    np.testing.assert_equal(found.values["."][0], 1234.5)  # reading does not change what was found


def test_times_and_hexadecimal_numbers():
    words = ["00:01", "1:02:03", "12:00 am", "1:30 p.m.", "0x1F", "noon"]
    np.testing.assert_equal(parse(words, "time"), [60, 3723, 0, 48600, NAN, NAN])
    np.testing.assert_equal(parse(words, "minutes:seconds"), [1, 3723, 0, 48600, NAN, NAN])
    laps = ["3:13.5", "0:07,25", "1:02:03.5", "3:13.5:07", "3:13."]
    np.testing.assert_equal(parse(laps, "minutes:seconds"), [193.5, 7.25, 3723.5, NAN, NAN])
    np.testing.assert_equal(parse(laps, "time"), [NAN, NAN, 3723.5, NAN, NAN])
    np.testing.assert_equal(parse(words, "hexadecimal"), [NAN] * 4 + [31, NAN])


@pytest.mark.parametrize(
    ("word", "writing", "date"),
    [
        ("2021-02-03", "year-month-day", "2021-02-03"), ("2021-02-30", "year-month-day", "NaT"),
        ("2021-02-03T04:05:06.7Z", "year-month-day", "2021-02-03T04:05:06.7"),
        ("2021-01-01 01:00+02:30", "year-month-day", "2020-12-31T22:30"),
        ("0001-01-01 00:00+01:00", "year-month-day", "NaT"),
        ("2021-01-01 01:00-0230", "year-month-day", "2021-01-01T03:30"), ("3/4/68", "day.month.year", "2068-04-03"),
        ("3/4/69", "month/day/year", "1969-03-04"), ("3/4-69", "month/day/year", "NaT"),
        ("Mi., 3. März 2021", "day month year", "2021-03-03"), ("2nd déc 2021", "day month year", "2021-12-02"),
        ("3 Foo 2021", "day month year", "NaT"),
        ("03-Mar-21", "day month year", "2021-03-03"), ("3 MAY 70 14:05", "day month year", "1970-05-03T14:05"),
        ("May 1st, 2021 12:30 AM", "month day year", "2021-05-01T00:30"),
        ("20210203", "yearmonthday", "2021-02-03"), ("2021-2", "year-month", "2021-02-01"),
        ("02.2021", "month/year", "2021-02-01"),
    ],
)  # fmt: skip
def test_words_as_dates(word, writing, date):
    np.testing.assert_equal(parse([word], writing), np.array([date], dtype="datetime64[us]"))
