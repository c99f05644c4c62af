"""The scanner against tomllib: whatever tomllib reads, the scanner finds, at the place where it stands."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trilogue.config.positions import Positions
from trilogue.config.problems import Path

BARE = st.text("abcXYZ019_-", min_size=1, max_size=4)
ANY_KEY = st.one_of(BARE, st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=5))
SCALARS = st.sampled_from(
    ["1", "-7", "0x1F", "1_000", "1.5", "inf", "true", "false", "1979-05-27", "1979-05-27 07:32:00", "1979-05-27T07:32:00Z",
     '""', '"a"', "''", "'[x]'",
     '"\\" ] } , # = \\\\"', '"""a\n[b]\n"quoted" \\" ="""', '""""x"""""', "'''\n'it' # [[no]]\n'''", "''''x'''''", '"é…"'])
BLANK = st.sampled_from(["", " ", "\t "])
LINE_BREAK = st.sampled_from(["", " ", "\n", "\n  # a, comment ] = [\n"])


@st.composite
def written_key(draw: st.DrawFn, key: str) -> str:
    bare = bool(key) and all(c in "abcXYZ019_-" for c in key)
    forms = [json.dumps(key, ensure_ascii=False).replace("\x7f", "\\u007f")]
    if "'" not in key and key.isprintable():
        forms.append(f"'{key}'")
    if bare:
        forms.append(key)
    return draw(st.sampled_from(forms))


@st.composite
def written_value(draw: st.DrawFn, depth: int = 2) -> str:
    kind = draw(st.sampled_from(["scalar", "array", "table"] if depth else ["scalar"]))
    if kind == "array":
        items = draw(st.lists(written_value(depth - 1), max_size=3))
        text = ",".join(draw(LINE_BREAK) + item + draw(LINE_BREAK) for item in items)
        comma = draw(st.sampled_from(["", ","])) if items else ""
        return f"[{text}{comma}{draw(LINE_BREAK)}]"
    if kind == "table":
        names = draw(st.lists(ANY_KEY, max_size=3, unique=True))
        pairs = [f"{draw(BLANK)}{draw(written_key(key))}{draw(BLANK)}={draw(BLANK)}{draw(written_value(depth - 1))}{draw(BLANK)}" for key in names]
        return "{" + ",".join(pairs) + "}"
    return draw(SCALARS)


@st.composite
def lines(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["value", "value", "value", "table", "tables", "comment"]))
    if kind == "comment":
        return draw(st.sampled_from(["", "   ", "# [x] = 1"]))
    keys = [draw(written_key(key)) for key in draw(st.lists(ANY_KEY, min_size=1, max_size=3))]
    dotted = draw(st.sampled_from([".", " . ", ". "])).join(keys)
    if kind == "value":
        return f"{draw(BLANK)}{dotted}{draw(BLANK)}={draw(BLANK)}{draw(written_value())}{draw(BLANK)}{draw(st.sampled_from(['', '# end']))}"
    return f"[{draw(BLANK)}{dotted}{draw(BLANK)}]" if kind == "table" else f"[[{dotted}]] # many"


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Lines that tomllib accepts together; a line that clashes with those before it is left out."""
    text = ""
    for line in draw(st.lists(lines(), max_size=12)):
        try:
            tomllib.loads(text + line + "\n")
        except tomllib.TOMLDecodeError:
            continue
        text += line + "\n"
    return text


def paths(tree: Any, path: Path = ()) -> set[Path]:
    """Every key and every array element, however deep."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return {below for key, value in inner for below in {(*path, key), *paths(value, (*path, key))}}


def at(tree: Any, path: Path) -> Any:
    for part in path:
        tree = tree[part]
    return tree


@given(documents())
def test_finds_exactly_what_tomllib_reads(text: str) -> None:
    positions = Positions(text)
    assert positions.keys.keys() | positions.values.keys() == paths(tomllib.loads(text))


@given(documents())
def test_positions_point_at_keys_and_values(text: str) -> None:
    tree = tomllib.loads(text)
    positions = Positions(text)
    rows = text.split("\n")
    for path, (line, column) in positions.keys.items():
        name = path[-1]
        rest = rows[line - 1][column - 1:]
        assert isinstance(name, int) or rest.startswith((name or '"', '"', "'", "["))
    for path, (line, column) in positions.values.items():
        rest = "\n".join([rows[line - 1][column - 1:], *rows[line:]])
        value = at(tree, path)
        if isinstance(value, str):
            assert rest[0] in "\"'"
        elif isinstance(value, bool):
            assert rest.startswith(str(value).lower())
        elif isinstance(value, list | dict):
            assert rest[0] in "[{"


def test_an_array_of_tables_below_another() -> None:
    text = '[[a]]\nx = 1\n[[a.b]]\ny = 2\n[[a]]\n[[a.b]]\n[[a.b]]\n  y = 3\n[a.c]\nz = 4\n'
    positions = Positions(text)
    assert positions.keys[("a", 0, "b", 0, "y")] == (4, 1)
    assert positions.keys[("a", 1, "b", 1, "y")] == (8, 3)
    assert positions.keys[("a", 1, "c", "z")] == (10, 1)


def test_find_falls_back_to_what_contains_it() -> None:
    positions = Positions("[a]\nb = {c = [1, 2]}\n")
    assert positions.find(("a", "b", "c", 1), value=True) == (2, 14)
    assert positions.find(("a", "b", "missing")) == (2, 1)
    assert positions.find(("a", "missing")) == (1, 2)
    assert positions.find(("nothing",)) is None


def test_what_is_no_document_is_refused_and_does_not_hang() -> None:
    for text in ("a = [ }", "a = {=1}", "= 1", "[", "a = ["):
        try:
            Positions(text)
        except ValueError:
            continue
