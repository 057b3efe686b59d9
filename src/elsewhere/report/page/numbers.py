"""How a number is printed: few digits for the eye, and never a digit that says more than the truth.

The full value goes into the `title` of the cell. A value below 1 is never printed as 1.000, and a
value that is not 0 is never printed as 0.000: both roundings change what a reader concludes.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from elsewhere.untrusted import as_float

MINUS = "−"
ABSENT = "—"
NARROW_SPACE = "\u202f"
MOST_DIGITS = 6


def count(value: Any) -> str:
    """Print a count.

    Args:
        value: The count; text, such as a suppressed cell, is printed unchanged, None gives a dash.

    Returns:
        A whole number with narrow spaces between thousands.

    Example:
        >>> count(420), count("<5")
        ('420', '<5')
    """
    if isinstance(value, str):
        return value
    number = as_float(value)
    if number is None:
        return ABSENT
    return f"{round(number):,}".replace(",", NARROW_SPACE).replace("-", MINUS)


def number(value: Any, digits: int = 3) -> str:
    """Print a number with as many digits as it bears.

    Args:
        value: The number; text is printed unchanged, None gives a dash.
        digits: How many decimals a value below 10 has.

    Returns:
        Three decimals below 10, fewer above; more digits where rounding would reach 1 or 0 falsely.

    Example:
        >>> number(0.84217), number(0.99996), number(12.345)
        ('0.842', '0.99996', '12.35')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return count(int(value))
    x = as_float(value)
    if x is None:
        return ABSENT
    size = abs(x)
    if size >= 1000:
        return count(x)
    places = digits if size < 10 else max(digits - 1, 1) if size < 100 else max(digits - 2, 1)
    text = f"{size:.{places}f}"
    if size != 0 and float(text) == 0:
        text = _small(size)
    elif size < 1 and float(text) >= 1:
        text = _below_one(size, places)
    return (MINUS if x < 0 else "") + text


def _small(size: float) -> str:
    for places in range(4, MOST_DIGITS + 1):
        text = f"{size:.{places}f}"
        if float(text) != 0:
            return text
    mantissa, exponent = f"{size:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}".replace("e-", "e" + MINUS)


def _below_one(size: float, places: int) -> str:
    for more in range(places + 1, MOST_DIGITS + 1):
        text = f"{size:.{more}f}"
        if float(text) < 1:
            return text
    return "0." + "9" * MOST_DIGITS


def signed(value: Any, digits: int = 3) -> str:
    """Print a difference with its sign, plus as well as minus.

    Args:
        value: The difference; None gives a dash.
        digits: How many decimals a value below 10 has.

    Returns:
        The text.

    Example:
        >>> signed(0.05)
        '+0.050'
    """
    x = as_float(value)
    text = number(value, digits)
    return "+" + text if x is not None and x > 0 else text


def percent(value: Any, digits: int = 1) -> str:
    """Print a share in per cent.

    Args:
        value: The share, in [0, 1]; None gives a dash.
        digits: How many decimals.

    Returns:
        The share as per cent; 99.96 % is never printed as 100 %, nor 0.04 % as 0 %.
    """
    x = as_float(value)
    if x is None:
        return ABSENT
    scaled = 100 * x
    text = f"{abs(scaled):.{digits}f}"
    if abs(x) < 1 and float(text) >= 100:
        text = ">" + f"{100 - 10**-digits:.{digits}f}"
    elif x != 0 and float(text) == 0:
        text = "<" + f"{10**-digits:.{digits}f}"
    return (MINUS if x < 0 else "") + text + NARROW_SPACE + "%"


def p_value(value: Any) -> str:
    """Print a p-value, never as 0.

    A p-value of a permutation or a bootstrap is never 0, so none is printed as 0.

    Args:
        value: The p-value; None gives a dash.

    Returns:
        The text.

    Example:
        >>> p_value(0.0002), p_value(0.04)
        ('<0.001', '0.040')
    """
    x = as_float(value)
    if x is None:
        return ABSENT
    return "<0.001" if x < 0.001 else f"{x:.3f}"


def interval(entry: Mapping[str, Any], digits: int = 3, *, sign: bool = False) -> str:
    """Print an interval.

    Args:
        entry: An estimate with `lo`, `hi` and `method`.
        digits: How many decimals.
        sign: Whether positive ends are printed with a plus sign.

    Returns:
        `[lo, hi]`, a one-sided bound as such (ST-02), or nothing where there is no interval.

    Example:
        >>> interval({"lo": 0.801, "hi": 0.876})
        '[0.801, 0.876]'
    """
    show = signed if sign else number
    lo, hi = as_float(entry.get("lo")), as_float(entry.get("hi"))
    if str(entry.get("method", "")) == "one-sided-bound" and (lo is None) != (hi is None):
        return f"≥ {show(lo, digits)}" if lo is not None else f"≤ {show(hi, digits)}"
    if lo is None and hi is None:
        return ""
    return f"[{show(lo, digits)}, {show(hi, digits)}]"


def value_with_interval(entry: Mapping[str, Any], digits: int = 3, *, sign: bool = False) -> str:
    """Print a value with its interval.

    Args:
        entry: An estimate with `value`, `lo`, `hi` and `method`.
        digits: How many decimals.
        sign: Whether positive numbers are printed with a plus sign.

    Returns:
        The value and the interval; 'undefined' where there is no value.

    Example:
        >>> value_with_interval({"value": 0.842, "lo": 0.801, "hi": 0.876})
        '0.842 [0.801, 0.876]'
    """
    show = signed if sign else number
    if as_float(entry.get("value")) is None and not isinstance(entry.get("value"), str):
        return "undefined"
    return f"{show(entry.get('value'), digits)} {interval(entry, digits, sign=sign)}".rstrip()


def full(value: Any) -> str:
    """Print a value with all its digits, for the title attribute and for machine reading.

    Args:
        value: The value; None is printed as 'undefined'.

    Returns:
        The text.
    """
    if value is None:
        return "undefined"
    x = as_float(value)
    return repr(x) if x is not None and not isinstance(value, Integral) else str(value)


def full_interval(entry: Mapping[str, Any]) -> str:
    """Print an estimate with all the digits of its value and its interval.

    Args:
        entry: An estimate with `value`, `lo`, `hi` and `method`.

    Returns:
        The text, with the method of the interval at its end.
    """
    text = full(entry.get("value"))
    if entry.get("lo") is not None or entry.get("hi") is not None:
        text += f" [{full(entry.get('lo'))}, {full(entry.get('hi'))}]"
    method = entry.get("method")
    return f"{text}; {method}" if method else text


def format_number(value: float | None, digits: int = 3) -> str:
    """Print a number on the terminal, never rounded up to a perfect 1 or down to a perfect 0.

    Args:
        value: The number; None and NaN are printed as 'undefined'.
        digits: How many decimals.

    Returns:
        The text.

    Example:
        >>> format_number(0.9999), format_number(0.5)
        ('>0.999', '0.500')
    """
    if value is None or value != value:
        return "undefined"
    text = f"{value:.{digits}f}"
    if value < 1 and float(text) == 1:
        return f">{1 - 10**-digits:.{digits}f}"
    if value > 0 and float(text) == 0:
        return f"<{10**-digits:.{digits}f}"
    return text


def format_interval(entry: Mapping[str, Any], digits: int = 3) -> str:
    """Print an estimate on the terminal.

    Args:
        entry: An estimate with `value`, `lo`, `hi`, and `undefined_reason` where there is no value.
        digits: How many decimals.

    Returns:
        The value and the interval, or why there is no number.

    Example:
        >>> format_interval({"value": 0.912, "lo": 0.88, "hi": 0.94})
        '0.912 [0.880, 0.940]'
    """
    value = entry.get("value")
    if value is None:
        return f"undefined ({entry.get('undefined_reason') or 'no reason given'})"
    text = format_number(value, digits)
    lo, hi = entry.get("lo"), entry.get("hi")
    if lo is not None and hi is not None:
        text += f" [{format_number(lo, digits)}, {format_number(hi, digits)}]"
    return text
