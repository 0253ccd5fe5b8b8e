"""The words of the report: metrics by name, numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from roadworthy.core.errors import UnknownName
from roadworthy.metrics import Metric, find_metric
from roadworthy.statistics import p_text

NO_BREAK = "\u00a0"
MISSING = "n/a"


def words_of(metric: Metric | str, own: Iterable[Metric] = ()) -> Metric:
    """The metric of a name, among `own` first; one that is not known here has nothing but its name.

    >>> words_of("accuracy_drop").label, words_of("ece_drop").label, words_of("my_metric").label
    ('Drop of accuracy', 'Rise of ECE', 'my_metric')
    """
    if isinstance(metric, Metric):
        return metric
    try:
        return find_metric(metric, own)
    except UnknownName:
        return _unknown(metric)


def _unknown(name: str) -> Metric:
    """A metric of which only the name is known: that of a plugin that is not loaded."""
    return Metric("unknown", label=name, sentence="", higher_is_better=None, range=(-math.inf, math.inf))


def number(metric: Metric | str, value: float) -> str:
    """A value as people read it; what is not exactly 0 or 1 is never rounded to it.

    >>> [number("accuracy", x).replace(NO_BREAK, " ") for x in (0.9731, 1.0, 0.99996, 0.0001, math.nan)]
    ['97.3 %', '100 %', '>99.9 %', '<0.1 %', 'n/a']
    >>> number("ece", 0.0342), number("accuracy_drop", -0.012).replace(NO_BREAK, " ")
    ('0.034', '−1.2 points')
    """
    words = words_of(metric)
    if value == math.inf:
        return words.infinite
    if not math.isfinite(value):
        return MISSING
    if words.percent:
        return f"{_decimal(100 * value, 1)}{NO_BREAK}points" if words.drop_of else f"{_share(value)}{NO_BREAK}%"
    return _decimal(value, words.digits)


def short_number(metric: Metric | str, value: float) -> str:
    """As `number`, without its unit: for the cells of a heat map.

    >>> short_number("accuracy", 0.9731)
    '97.3'
    """
    return number(metric, value).partition(NO_BREAK)[0]


def bounds(metric: Metric | str, lo: float, hi: float) -> str:
    """Two bounds with one unit.

    >>> bounds("accuracy", 0.968, 0.977).replace(NO_BREAK, " "), bounds("ece", math.nan, math.nan)
    ('96.8 to 97.7 %', 'no bounds')
    >>> time = Metric("time", label="", sentence="", higher_is_better=True, digits=1, infinite="no failure")
    >>> bounds(time, 6.5, math.inf), number(time, math.inf)
    ('at least 6.5', 'no failure')
    """
    unbounded = math.isinf(hi) or words_of(metric).infinite != "infinite"  # stored as null where it is infinite
    if math.isfinite(lo) and unbounded and not math.isfinite(hi):
        return f"at least {number(metric, lo)}"
    if math.isnan(lo) or math.isnan(hi):
        return "no bounds"
    return f"{short_number(metric, lo)} to {number(metric, hi)}"


def signed(value: float) -> str:
    """A change or a difference, with its sign.

    >>> signed(0.0123), signed(-0.2), signed(0.0), signed(math.nan)
    ('+0.0123', '−0.2000', '0', 'n/a')
    """
    if not math.isfinite(value):
        return MISSING
    return f"{'+' if value > 0 else ''}{_decimal(value, 4)}"


def p_value(p: float) -> str:
    """A p value as `p_text` writes it, on one line.

    >>> p_value(0.04321), p_value(1e-9).replace(NO_BREAK, " "), p_value(math.nan)
    ('.043', '< .001', 'n/a')
    """
    return MISSING if math.isnan(p) else p_text(p).replace(" ", NO_BREAK)


def whole(count: float) -> str:
    """A count with commas between thousands.

    >>> whole(12330)
    '12,330'
    """
    return f"{int(count):,}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "image"), plural(6315, "class"), plural(0, "image")
    ('1 image', '6,315 classes', '0 images')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{whole(count)} {noun}{ending}"


def listing(items: Sequence[str]) -> str:
    """Items as a person lists them.

    >>> listing(["fog", "rain", "snow"]), listing(["fog"])
    ('fog, rain and snow', 'fog')
    """
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def first_of(items: Sequence[str], most: int = 25) -> str:
    """As `listing`, where there are many only the first of them and how many more there are.

    >>> first_of(["fog", "rain", "snow", "blur"], most=2), first_of(["fog", "rain"], most=2)
    ('fog, rain and 2 more', 'fog and rain')
    """
    return listing(items if len(items) <= most else [*items[:most], f"{whole(len(items) - most)} more"])


def setting_text(value: object) -> str:
    """The value of a setting as people read it; what was left unset in it is not named.

    >>> setting_text({"fog": {"shift": "fog", "level": 3, "merge": {}, "near": None, "labels": True}, "own": {}})
    'fog (shift fog, level 3, labels yes), own'
    >>> setting_text(False), setting_text([]), setting_text(["a", 0.5]), setting_text(None)
    ('no', 'none', 'a, 0.5', 'none')
    """
    if value is None or value in ({}, [], ()):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(_named_setting(str(name), own) for name, own in value.items() if own is not None)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(setting_text(own) for own in value)
    return str(value)


def _named_setting(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        known = {key: own for key, own in value.items() if own not in (None, {}, [])}
        return f"{name} ({setting_text(known)})" if known else name
    return f"{name} {setting_text(value)}"


def _decimal(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    smallest = 10.0**-digits
    if 0 < abs(value) < smallest / 2:
        return f"{'<' if value > 0 else '>−'}{smallest:.{digits}f}"
    return f"{value:.{digits}f}".replace("-", "−")


def _share(value: float) -> str:
    if value in (0.0, 1.0):
        return f"{100 * value:.0f}"
    if 0.9995 <= value < 1:
        return ">99.9"
    if 0 < value < 0.0005:
        return "<0.1"
    return _decimal(100 * value, 1)
