"""Random templates give for whole columns what they give for each entry alone."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.logql.stages.template import parse
from lakerunner.query.logql.stages.template.evaluate import evaluate
from lakerunner.query.logql.stages.template.go_types import Labels
from lakerunner.query.logql.stages.template.interpreter import Entry
from tests.query.logql.stages.template.entries import OTHERS, THE_ENTRY, entries_of, interpreted, outcomes

_LABEL = st.sampled_from([".a", ".n", ".f", ".e", ".u", ".neg", ".nope", "__line__", "$.a"])
_TEXT = st.sampled_from(['"a"', '""', '"o"', '"é"', '"12"', '"3.7"', '"x y"', '"[a-f]+"', '"$1"', '"x*"', '"(l+)o"'])
_NUMBER = st.sampled_from(["0", "1", "-1", "3", "100", "1.5", "-0.5", "1e3", "9223372036854775807"])
_SMALL = st.sampled_from(["0", "1", "2", "5", "-1", "-3", "(len .n)", "(int .n)"])
_ATOM = st.one_of(_LABEL, _TEXT, _NUMBER, st.sampled_from(["true", "nil", "__timestamp__"]))


def _calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Calls whose arguments are mostly of the type that the function takes."""
    text = st.one_of(_LABEL, _LABEL, _TEXT, inner)

    def call(names: str, *arguments: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.tuples(st.sampled_from(names.split()), *arguments).map(lambda parts: f"({' '.join(parts)})")

    return st.one_of(
        call("lower upper title trim b64enc urlencode urldecode bytes duration len int not fromJson", text),
        call("Trim TrimLeft TrimRight TrimPrefix TrimSuffix trimAll trimPrefix contains hasPrefix count", text, text),
        call("trunc indent alignLeft alignRight", _SMALL, text),
        call("substr slice", _SMALL, _SMALL, text),
        call("replace regexReplaceAll regexReplaceAllLiteral", text, text, text),
        call("add sub mul div mod addf subf divf max minf eq ne lt le gt ge and or default print", inner, inner),
        call('printf "%s|%5v" printf', inner, inner),
        call("and or eq", inner, inner, inner),
        st.sampled_from(['(date "15:04:05.000" __timestamp__)', "__timestamp__.Year", "(unixEpoch __timestamp__)"]),
        st.tuples(inner, st.sampled_from(["upper", "len", "trunc 3", "add 1", 'printf "%v"', "not"])).map(
            lambda parts: f"({parts[0]} | {parts[1]})"
        ),
    )


_EXPRESSION = st.recursive(_ATOM, _calls, max_leaves=6)
_TEMPLATE = st.one_of(
    _EXPRESSION.map(lambda one: f"<{{{{ {one} }}}}>"),
    st.tuples(_EXPRESSION, _EXPRESSION, _EXPRESSION).map(
        lambda each: f"{{{{ if {each[0]} }}}}{{{{ {each[1]} }}}}{{{{ else }}}}no {{{{ {each[2]} }}}}{{{{ end }}}}"
    ),
    st.tuples(_EXPRESSION, _EXPRESSION).map(
        lambda each: f"{{{{ $x := {each[0]} }}}}{{{{ with {each[1]} }}}}{{{{ . }}}}{{{{ $x }}}}{{{{ end }}}}"
    ),
)
_ENTRY = st.builds(
    Entry,
    st.dictionaries(st.sampled_from("anfeu"), st.text(max_size=8).filter(lambda text: text.isprintable())).map(Labels),
    st.text(max_size=12).filter(lambda text: text.isprintable()),
    st.integers(-(1 << 62), 1 << 62),
)


@settings(max_examples=150, deadline=None)
@given(_TEMPLATE, st.lists(_ENTRY, max_size=4))
def test_columns_equal_entries(template: str, more: list[Entry]) -> None:
    entries = [*more, THE_ENTRY, *OTHERS]
    made = evaluate(parse(template), "line", entries_of(entries), lambda: None)
    assert outcomes(made) == [interpreted(template, entry) for entry in entries]


def test_no_entries() -> None:
    for template in (
        "{{.a}}",
        "{{ upper .a }} x",
        "{{ if .a }}{{ div 1 0 }}{{ end }}",
        "{{ range . }}{{ . }}{{ end }}",
    ):
        made = evaluate(parse(template), "line", entries_of([]), lambda: None)
        assert made.texts.equals(pa.array([], pa.string()))


def test_cuts_beyond_any_length_leave_plain_texts_whole() -> None:
    entries = [Entry(Labels(a=text), "", 0) for text in ("hello", "a longer text")]
    for cut in ("trunc 9223372036854775807", "trunc -9223372036854775807", "substr 0 9223372036854775807"):
        template = f"{{{{ {cut} .a }}}}"
        made = evaluate(parse(template), "line", entries_of(entries), lambda: None)
        assert outcomes(made) == [interpreted(template, entry) for entry in entries], cut
        assert made.texts.to_pylist() == ["hello", "a longer text"], cut
