"""The tree of a pattern, printed as a pattern again, matches what the pattern matches."""

from __future__ import annotations

from typing import Any

import pytest
import re2  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.syntax.re2_syntax import (
    Dot,
    Either,
    Letter,
    NamedClass,
    Node,
    NotRead,
    OneOf,
    Place,
    PlaceKind,
    Repeated,
    Sequence,
    Span,
    nodes,
    re2_tree,
)

_ATOMS = st.sampled_from(
    [
        "a", "b", "K", "s", "é", "-", ".", "^", "$", "{", "}", "a{x", r"\.", r"\_", r"\ ", r"\n", r"\x61", r"\x{e9}",
        r"\141", r"\12", r"\0", r"\Qab\E", r"\Q\E", r"\Qa.", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", r"\B",
        r"\A", r"\z", r"\pL", r"\p{^Lu}", r"\PN", "[ab]", "[^a]", "[a-c]", "[[:alpha:]]", "[^[:digit:]x]", r"[\W_a]",
        "[]a]", "[^]a]", "[a-]", "[-a]", r"[\d-z]", "[a-é]", r"[^\d\s]", "[[a]", "[[:a]", r"[\x41-\x43\n]", "|",
        "(?i)", "(?s)", "(?m)", "(?U)", "(?-i)", "(?i-s)", "()",
    ]
)  # fmt: skip
_REPETITIONS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,1}", "{1,2}", "{0}", "+?", "{2,}", "??", "{,2}"])
_GROUPS = st.sampled_from(["(", "(?:", "(?i:", "(?s:", "(?m:", "(?-i:", "(?P<n>", "(?<m>", "(?i-s:", "(?U:"])


def _repeated(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(parts, _REPETITIONS).map("".join), max_size=4).map("".join)


_PATTERNS = st.recursive(
    _repeated(_ATOMS),
    lambda inner: _repeated(st.one_of(_ATOMS, st.tuples(_GROUPS, inner, st.just(")")).map("".join))),
    max_leaves=6,
)
_TEXTS = st.text("abcAK0ks\u212a\u017fé-.1{}]_ \n\tz", max_size=8)


def _compiled(pattern: str, *, dot_newline: bool = False) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = dot_newline
    return re2.compile(pattern, options)


def _printed(node: Node) -> str:
    """A pattern of the same meaning, with every letter as a number and every flag where it applies."""
    match node:
        case Letter(text, ignore_case):
            return rf"(?{'i' if ignore_case else '-i'}:\x{{{ord(text):x}}})"
        case Dot(newline):
            return f"(?{'s' if newline else '-s'}:.)"
        case OneOf(_, _, ignore_case):
            return f"(?{'i' if ignore_case else '-i'}:{_class(node)})"
        case NamedClass(text):
            return text
        case Place(PlaceKind.TEXT_BEGIN | PlaceKind.TEXT_END as kind):
            return f"(?-m:{kind.value})"
        case Place(kind):
            return f"(?:{kind.value})"
        case Sequence(parts):
            return "".join(map(_printed, parts))
        case Either(parts):
            return f"(?:{'|'.join(map(_printed, parts))})"
        case Repeated(part, least, most):
            return f"(?:{_printed(part)}){{{least},{'' if most is None else most}}}"


def _class(node: OneOf) -> str:
    spans = [rf"\x{{{each.low:x}}}-\x{{{each.high:x}}}" for each in node.members if isinstance(each, Span)]
    named = [each.text for each in node.members if isinstance(each, NamedClass)]
    nested = [_escaped(each) for each in node.members if isinstance(each, OneOf)]
    return f"[{'^' if node.negated else ''}{''.join((*spans, *named, *nested))}]"


def _escaped(node: OneOf) -> str:
    names = {_class(OneOf(found.members)): name for name in "dws" if isinstance(found := _only(rf"\{name}"), OneOf)}
    name = names[_class(OneOf(node.members))]
    return "\\" + (name.upper() if node.negated else name)


def _only(pattern: str) -> Node:
    found = re2_tree(pattern)
    assert isinstance(found, Sequence)
    return found.parts[0]


@settings(max_examples=400)
@given(pattern=_PATTERNS, texts=st.lists(_TEXTS, max_size=20), dot_newline=st.booleans())
def test_a_tree_means_what_its_pattern_means(pattern: str, texts: list[str], dot_newline: bool) -> None:
    try:
        expected = _compiled(pattern, dot_newline=dot_newline)
    except re2.error:
        return
    try:
        found = _compiled(_printed(re2_tree(pattern, dot_newline=dot_newline)))
    except NotRead:
        return
    for text in texts:
        assert (found.search(text) is None) == (expected.search(text) is None)
        assert (found.fullmatch(text) is None) == (expected.fullmatch(text) is None)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", Letter("a")),
        ("(?i)a", Letter("a", True)),
        (r"\x{e9}", Letter("é")),
        (r"\101", Letter("A")),
        (".", Dot(False)),
        ("(?s).", Dot(True)),
        ("[^a-c-]", OneOf((Span(97, 99), Span(45, 45)), negated=True)),
        (r"[\D[:alpha:]]", OneOf((OneOf((Span(48, 57),), negated=True), NamedClass("[:alpha:]")))),
        (r"\p{Greek}", NamedClass(r"\p{Greek}")),
        (r"\A", Place(PlaceKind.TEXT_BEGIN)),
        ("(?m)$", Place(PlaceKind.LINE_END)),
        ("(?P<n>)", Sequence(())),
        ("a{2,}?", Repeated(Letter("a"), 2, None)),
        ("{2", Letter("{")),
    ],
)
def test_nodes(pattern: str, expected: Node) -> None:
    assert _only(pattern) == expected


def test_a_repetition_after_a_quote_is_one_of_its_last_letter() -> None:
    assert re2_tree(r"\Qab\E+") == re2_tree("ab+")


def test_flags_end_with_their_group() -> None:
    letters = [node for node in nodes(re2_tree("a((?i)b|c(?-i)d)e(?i:f)g")) if isinstance(node, Letter)]
    assert [each.text for each in letters if each.ignore_case] == ["b", "c", "f"]


@pytest.mark.parametrize(
    "pattern",
    [
        "a**", "a{2}{3}", "*", "a(?i)*", "a(?i){0,1}", "^|{2}", "(", ")", "[a", "[", r"\C", r"\8", r"\x{110000}",
        r"\x{d800}", "(?=a)", "(?P=n)", "(" * 60 + ")" * 60, "a" * 20_000,
    ],
)  # fmt: skip
def test_what_is_not_read_is_refused(pattern: str) -> None:
    with pytest.raises(NotRead):
        re2_tree(pattern)
