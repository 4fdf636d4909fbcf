"""Dates as people write them, with typing errors, and their ISO form."""

import datetime
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MONTHS = "january february march april may june july august september october november december".split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
TENS = {2: "twenty", 3: "thirty", 4: "forty", 5: "fifty", 6: "sixty", 7: "seventy", 8: "eighty", 9: "ninety"}
ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth"}
ORDINALS |= {"twelve": "twelfth"}
KEYS = "abcdefghijklmnopqrstuvwxyz"

FIRST, LAST = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)
ERROR_RATE = 0.06  # per character

# Target ids: padding, start, end, then characters.
PAD, BOS, EOS = 0, 1, 2
CHARACTERS = "0123456789-"
TARGET_LENGTH = len("2026-11-21") + 1  # including the end


class Dates(NamedTuple):
    """N dates."""

    texts: list[str]  # in their written forms
    iso: list[str]


def number_words(number: int) -> str:
    """Returns a number below 100 in words."""
    if number < 20:
        return ONES[number]
    return TENS[number // 10] + ("-" + ONES[number % 10] if number % 10 else "")


def ordinal_words(number: int) -> str:
    """Returns the ordinal of a number below 100 in words."""
    *head, last = number_words(number).split("-")
    if last in ORDINALS:
        last = ORDINALS[last]
    else:
        last = last[:-1] + "ieth" if last.endswith("y") else last + "th"
    return "-".join([*head, last])


def ordinal(number: int) -> str:
    """Returns 1st, 2nd, 3rd, 4th, ..."""
    suffix = "th" if 11 <= number <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def year_words(year: int) -> str:
    """Returns a year from 1950 to 2049 as it is read aloud."""
    if 2000 <= year < 2010:
        return "two thousand" + (" and " + ONES[year - 2000] if year > 2000 else "")
    return f"{number_words(year // 100)} {number_words(year % 100)}"


def write(rng: np.random.Generator, date: datetime.date) -> str:
    """Writes a date in one of many forms. Two digits identify the year, as the range spans 100 years."""
    month, weekday = MONTHS[date.month - 1], DAYS[date.weekday()]
    if rng.random() < 0.3:
        month = month[:3]
    day = [str(date.day), ordinal(date.day), ordinal_words(date.day)][rng.integers(3)]
    year = [str(date.year), f"'{date.year % 100:02}", year_words(date.year)][rng.integers(3)]
    form = ["{day} {month} {year}", "{month} {day}, {year}", "the {day} of {month} {year}", "{year}, {month} {day}"]
    text = form[rng.integers(len(form))].format(day=day, month=month, year=year)
    return f"{weekday}, {text}" if rng.random() < 0.3 else text


def with_errors(rng: np.random.Generator, text: str) -> str:
    """Adds typing errors: omitted, doubled, swapped and mistyped characters."""
    characters = list(text)
    for i in range(len(characters)):
        if rng.random() >= ERROR_RATE:
            continue
        match rng.integers(4):
            case 0:
                characters[i] = ""
            case 1:
                characters[i] *= 2
            case 2 if i:
                characters[i - 1], characters[i] = characters[i], characters[i - 1]
            case _:
                if characters[i].isalpha():
                    characters[i] = KEYS[rng.integers(len(KEYS))]
    return "".join(characters)


def held_out(day: int) -> bool:
    """Returns whether a day, counted from FIRST, is for evaluation: a tenth of all days, evenly spread."""
    return day * 7919 % 10 == 3


def draw_dates(count: int, training: bool, seed: int | Sequence[int]) -> Dates:
    """Draws dates for training or for evaluation. Depends on the seed only."""
    rng = np.random.default_rng(seed)
    days = [day for day in range((LAST - FIRST).days + 1) if held_out(day) != training]
    dates = [FIRST + datetime.timedelta(int(day)) for day in rng.choice(days, count)]
    return Dates([with_errors(rng, write(rng, date)) for date in dates], [date.isoformat() for date in dates])


def encode_targets(iso: Sequence[str]) -> np.ndarray:
    """Returns ids [N, TARGET_LENGTH], including the end."""
    return np.array([[CHARACTERS.index(c) + 3 for c in text] + [EOS] for text in iso], np.int32)
