"""Ways to break an input: numbers, words, tables, text and bytes, each chosen by a random generator."""

from __future__ import annotations

import copy
import json
import math
import random
import re
from typing import Any

# What is typed where a number belongs.
NUMBERS = (
    "0", "-1", "-0", "-0.0", "0.5", "1.5", "-3.7", "inf", "-inf", "nan", "Infinity", "NaN", "1e999", "-1e999",
    "1e308", "1e300", "1e18", "1e15", "1e12", "1e9", "1000000", "65537", "1e-9", "1e-320", "9" * 40, "9" * 5000,
    "0x10", "1_000", "٣", "²", "1e", "e5", "--1", "+-1", "1,5", "1,,2", ",", "1:1e12", "1:8:1e9", "8:1:-1",
    "1:8:0", "1:8:1.5", "1:inf:3", ":", "::", "", " ", "None", "True", "many", "1 2", "1 TB/s", "1 parsec",
    "-5 TB/s", "inf TB/s", "nan s", "0 s", "1e400 W", "2 B/s/s/s", "1/0", "2**99999999", "1<<99",
)  # fmt: skip
# What is typed where a word belongs.
WORDS = (
    "", " ", "\t", "\n", "a\nb", "\x00", "é", "日本", "🚀", "\u202e", "\ufeff", "None", "nan", "..", ".",
    "/dev/null", "nowhere/at/all.toml", "nowhere.json", "x" * 3000, "%s", "{}", "{0}", "[]", "'", '"', "\\", "-",
    "--", "=", "a=b", "=1", "tp=", ",,,", ";", "__class__", "a.b.c", "a.__class__", "*", "h20o", "lama", "0xh200",
    "-1xh200", "1e9xh200", "8xh200xh200", "8.5xh200", "99999999999xh200", "xh200", "8x", "infxh200", "3x9xh200",
    "100000x8xh200", "8xh200+", "bf16,", "fp9", "tp=8,tp=8", "tp=0", "tp=nan", "tp=1e9", "order=tp", "RC-4-2",
    "RC-0-0", "d-1", "d99999999", "RC-4-2-d8-p999999",
)  # fmt: skip
# What stands in a file where something else belongs.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, -2.5, math.inf, -math.inf, math.nan, 1e300, 10**30, 10**400, 1e-300, "", " ",
    "x", "inf", "nan", "-1", "1e999", "1 TB/s", "-4 TB/s", "inf TB/s", "4.8 parsec", "@nothing", "../x.toml", "é" * 9,
    "h200", "__class__", "9" * 400, [], {}, [[]], [None], [1, 2], [1, "a"], ["a", "b"], {"value": 1},
    {"value": math.nan, "source": "assumed: a test"}, {"value": "inf", "source": "assumed: a test"},
    {"value": -1, "source": "assumed: a test"}, {"value": [1], "source": "assumed: a test"},
    {"value": 1e300, "source": "assumed: a test"}, {"source": "assumed: a test"}, {"a": {"b": {"c": 1}}},
)  # fmt: skip
EXPRESSIONS = (
    "9**9**9", "2**99999999", "2.0**99999", "10**400 * 1.0", "1 << 99999999999", "1 << -1", "1/0", "1//0", "1%0",
    "0**-1", "(-8)**0.5", "log(-1)", "sqrt(-1)", "log(0)", "exp(1e9)", "a.__class__", "a.shape", "().__class__",
    "__import__('os')", "open('x')", "[0]*10**10", "'x'*10**10", "a[10**10]", "a[::0]", "a['x']", "a[a]", "a[None]",
    "max()", "min(1, 2, 3, 4)", "sum(a, a, a)", "where(a)", "nanquantile(a, 7)", "correlation(a, 1)", "diff(1)",
    "len()", "~a", "not a", "a and b", "a if b else 1", "a @ b", "a @ a", "1 + 'x'", "'x' < 1", "(1, 2) + 1",
    "[1] * a", "lambda: 1", "a := 1", "f'{a}'", "b''", "1j", "...", "x for x in a", "{1: 2}", "*a", "a;b", "a\nb",
    "nosuch", "ab", "max", "abs(abs)", "round(a, 10**9)", "round(1.5, 10**30)", "1e999", "1e999 - 1e999",
    "where(a > 1, 1 / 0, 1)", "mean([])", "max([])", "argmax([])", "geomean([-1])", "geomean([])", "a[1, 2]",
    "a[0][0]", "True", "None", "'a'", "-'a'", "a == 'x'", "a in b", "a is b", "0x" + "f" * 4000, "1" * 5000,
)  # fmt: skip


def number_text(rng: random.Random, text: str) -> str:
    """A text with one of its numbers replaced by a bad one."""
    found = list(re.finditer(r"\d+(\.\d+)?(e[-+]?\d+)?", text))
    if not found:
        return rng.choice(NUMBERS)
    at = rng.choice(found)
    return text[: at.start()] + rng.choice(NUMBERS) + text[at.end() :]


def characters(rng: random.Random, text: str) -> str:
    """A text with characters dropped, doubled, changed or put in."""
    for _ in range(rng.randint(1, 3)):
        i = rng.randint(0, len(text))
        strange = rng.choice("0-.,:;=x%/\\'\"()[]{}*+ \t\n\x00é٣\u202e🚀_@#!?^~|&<>$")
        how = rng.randrange(4)
        if how == 0:
            text = text[:i] + text[i + 1 :]
        elif how == 1:
            text = text[:i] + strange + text[i:]
        elif how == 2:
            text = text[:i] + strange + text[i + 1 :]
        else:
            text = text[:i] + text[max(0, i - rng.randint(1, 8)) :]
    return text


def bad_text(rng: random.Random, text: str) -> str:
    """A value of an option, broken."""
    how = rng.randrange(5)
    if how == 0:
        return rng.choice(NUMBERS)
    if how == 1:
        return rng.choice(WORDS)
    made = number_text(rng, text) if how < 4 else characters(rng, text)
    return f".{made}" if made.startswith("/") else made  # nothing is written outside of where a case runs


# ------------------------------------------------------------------------------------------ tables


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything in a table."""
    found = [path] if path else []
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        found += places(value, (*path, key))
    return found


def bad_table(rng: random.Random, table: Any) -> Any:
    """A table with something in it dropped, retyped, misspelt, nested wrongly or out of range."""
    table = copy.deepcopy(table)
    for _ in range(1 if rng.random() < 0.8 else 3):
        every = places(table)
        if not every:
            return table
        *above, key = rng.choice(every)
        owner = table
        for step in above:
            owner = owner[step]
        _break(rng, owner, key)
    return table


def _break(rng: random.Random, owner: Any, key: Any) -> None:
    value, how = owner[key], rng.randrange(9)
    if how == 0:
        del owner[key]
    elif how == 1 and isinstance(owner, dict):
        owner[characters(rng, str(key)) or "x"] = owner.pop(key)
    elif how == 2 and isinstance(owner, dict):
        owner[rng.choice(("extra", "base", "kind", "name", "value", "sources"))] = rng.choice(VALUES)
    elif how == 3:
        owner[key] = rng.choice(([value], {"value": value}, {"x": value}, [value, value], str(value)))
    elif how == 4 and isinstance(value, int | float) and not isinstance(value, bool):
        near = value if abs(value) < 1e300 else 1e300 if value > 0 else -1e300  # no float holds more
        owner[key] = rng.choice((-value, near + 0.5, near * 1e12, near * 1e-12, 0, math.nan, math.inf, 7, 3))
    elif how == 5 and isinstance(value, str):
        owner[key] = bad_text(rng, value)
    elif how == 6 and isinstance(value, list):
        owner[key] = rng.choice((value * 2, value[:1], value[::-1], [*value, None], value * 1000))
    else:
        owner[key] = copy.deepcopy(rng.choice(VALUES))


def toml_text(table: dict[str, Any]) -> str:
    """A table as TOML, each key on a line of its own, whatever it holds."""
    return "".join(f"{json.dumps(str(k))} = {_inline(v)}\n" for k, v in table.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(v) for v in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return (
            "nan"
            if math.isnan(value)
            else "inf"
            if value == math.inf
            else "-inf"
            if value == -math.inf
            else repr(value)
        )
    if isinstance(value, int):
        return str(value)
    return json.dumps(value) if isinstance(value, str) else "1979-05-27"


# ------------------------------------------------------------------------------------------ text and bytes


def bad_bytes(rng: random.Random, content: bytes) -> bytes:
    """A file's bytes, broken: cut, flipped, doubled, emptied, in another encoding."""
    how = rng.randrange(13)
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    if how == 0:
        return b""
    if how == 1:
        return content[: rng.randrange(len(content) + 1)]
    if how == 2:
        flipped = bytearray(content)
        for _ in range(rng.randint(1, 5)):
            if flipped:
                flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    if how == 3:
        return b"\xef\xbb\xbf" + content
    if how == 4:
        return content.decode("utf-8", "replace").encode("utf-16")
    if how == 5:
        return b"\n".join([*lines[:at], lines[at], *lines[at:]])
    if how == 6:
        return b"\n".join([*lines[:at], *lines[at + 1 :]])
    if how == 7:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
        return b"\n".join(lines)
    if how == 8:
        return bytes(rng.randrange(256) for _ in range(rng.choice((1, 64, 4096))))
    if how == 9:
        return content.replace(b"\n", rng.choice((b"\r", b"\r\n", b"\n\n", b"\x00\n")))
    if how == 10:
        return rng.choice((b"[", b"{")) * rng.choice((10, 100000))
    if how == 11:
        return rng.choice(
            (b"null", b"[]", b"{}", b"1", b"NaN", b'"x"', b"a = 1", b"a,b\n1,2\n", b"\n\n\n", b"\x00" * 100)
        )
    i = rng.randrange(len(content) + 1)
    strange = rng.choice(
        ("é", "日", "\x00", "\u202e", '"', "'", ",", "=", "[", "}", "\\u", "inf", "-", "1e999")
    )
    return content[:i] + strange.encode() + content[i:]


def bad_csv(rng: random.Random, content: bytes) -> bytes:
    """A CSV file with cells, columns or rows broken."""
    rows = [line.split(",") for line in content.decode().strip().split("\n")]
    for _ in range(rng.randint(1, 3)):
        how, i = rng.randrange(7), rng.randrange(len(rows))
        j = rng.randrange(max(1, len(rows[i])))
        if how < 3 and rows[i]:
            rows[i][j] = bad_text(rng, rows[i][j]).replace("\x00", "")
        elif how == 3 and len(rows[i]) > 1:
            del rows[i][j]
        elif how == 4:
            rows[i].append(rng.choice(NUMBERS))
        elif how == 5:  # a whole column goes
            rows = [[*row[:j], *row[j + 1 :]] for row in rows]
        else:
            del rows[i]
        rows = rows or [[""]]
    return "\n".join(",".join(row) for row in rows).encode()


def bad_log(rng: random.Random, content: bytes) -> bytes:
    """A log with words changed, lines lost, doubled, moved or cut, prefixes before them, an end that is missing."""
    lines = content.decode().split("\n")
    for _ in range(rng.randint(1, 4)):
        at, how = rng.randrange(len(lines)), rng.randrange(7)
        words = lines[at].split()
        if how <= 2 and words:
            word = rng.randrange(len(words))
            words[word] = number_text(rng, words[word]) if how else characters(rng, words[word])
            lines[at] = "  ".join(words)
        elif how == 3:
            del lines[at : at + rng.randint(1, 5)]
            lines = lines or [""]
        elif how == 4:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif how == 5:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        else:
            lines = [rng.choice(("[1,0]<stdout>:", "0: ", "\x1b[31m", "x ", "")) + line for line in lines]
    return rng.choice(("\n", "\r\n", "\r")).join(lines).encode("utf-8", "replace")


def bad_expression(rng: random.Random) -> str:
    """An expression with something wrong, or deep, or long, in it."""
    how = rng.randrange(6)
    one = rng.choice(EXPRESSIONS)
    if how == 0:
        return one
    if how == 1:
        return rng.choice(
            ("({})+1", "max({})", "-({})", "[{}][0]", "a[{}]", "({}) if a else 1", "({})**2")
        ).format(one)
    if how == 2:
        return f"({one}) {rng.choice(['+', '-', '*', '/', '//', '%', '**', '<<', '>>', '&', '|', '^', '<', '==', 'and', 'or'])} ({rng.choice(EXPRESSIONS)})"
    if how == 3:
        deep = rng.choice((50, 500, 100000))
        return rng.choice(
            (
                "(" * deep + "1" + ")" * deep,
                "-" * deep + "1",
                "1+" * deep + "1",
                "a[" * deep + "0" + "]" * deep,
                "not " * deep + "1",
            )
        )
    return characters(
        rng,
        one
        if how == 4
        else rng.choice(
            ("max(a) / b if b > 1 else a[0]", "(ep == 1) & (cp == 1)", "sum(a[1:]) ** 2 + len(a)")
        ),
    )
