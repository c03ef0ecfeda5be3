"""Text to tree: precedence, positions, errors and limits."""

from __future__ import annotations

import time

import pytest

from lakerunner.query.logql.ast import (
    Binary,
    BytesFilter,
    CompareOp,
    Condition,
    DurationFilter,
    LabelFilter,
    LineFilter,
    LineOp,
    LogSelector,
    Number,
    NumberFilter,
    RangeAggregate,
    StringFilter,
    VectorAggregate,
)
from lakerunner.query.logql.parser import parse, parse_matchers
from lakerunner.query.logql.printer import condition_text, print_expr
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.limits import MAX_TEXT_LENGTH
from lakerunner.query.vectors.matching import Cardinality


def _selector(text: str) -> LogSelector:
    expr = parse(text)
    assert isinstance(expr, LogSelector)
    return expr


def _condition(text: str) -> Condition:
    (stage,) = _selector(f'{{a="b"}} | {text}').stages
    assert isinstance(stage, LabelFilter)
    return stage.condition


# -- what is read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a=1 and b=1 or c=1", "( ( a==1 , b==1 ) or c==1 )"),
        ("a=1 or b=1 and c=1", "( a==1 or ( b==1 , c==1 ) )"),
        ("a=1 or b=1 or c=1", "( ( a==1 or b==1 ) or c==1 )"),
        ("a=1, b=1 or c=1", "( a==1 , ( b==1 or c==1 ) )"),
        ("a=1 b=1 or c=1", "( a==1 , ( b==1 or c==1 ) )"),
        ("a=1 or b=1, c=1", "( a==1 or ( b==1 , c==1 ) )"),
        ("a=1 and b=1, c=1 or d=1", "( a==1 , ( b==1 , ( c==1 or d==1 ) ) )"),
        ("(a=1 or b=1), c=1", "( ( a==1 or b==1 ) , c==1 )"),
        ("(a=1) (b=1)", "( a==1 , b==1 )"),
    ],
)
def test_commas_and_spaces_take_everything_to_their_right(text: str, meaning: str) -> None:
    assert condition_text(_condition(text)) == meaning


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 5", NumberFilter("x", CompareOp.GREATER, 5)),
        ("x == -1e3", NumberFilter("x", CompareOp.EQUAL, -1000)),
        ("x > 1_000", NumberFilter("x", CompareOp.GREATER, 1000)),
        ("x >= 1.5h", DurationFilter("x", CompareOp.GREATER_EQUAL, 5_400_000_000_000)),
        ("x < 1d12h", DurationFilter("x", CompareOp.LESS, 129_600_000_000_000)),
        ("x = 250µs", DurationFilter("x", CompareOp.EQUAL, 250_000)),
        ("x > -5m", DurationFilter("x", CompareOp.GREATER, -300_000_000_000)),
        ("x > 20MB", BytesFilter("x", CompareOp.GREATER, 20_000_000)),
        ("x > 20MiB", BytesFilter("x", CompareOp.GREATER, 20 << 20)),
        ("x != 5k", BytesFilter("x", CompareOp.NOT_EQUAL, 5_000)),
        ("x = 0B", BytesFilter("x", CompareOp.EQUAL, 0)),
        ('x = "5"', StringFilter(Matcher("x", MatchKind.EQUAL, "5"))),
    ],
)
def test_a_label_filter_compares_by_the_kind_of_its_value(text: str, expected: Condition) -> None:
    assert _condition(text) == expected


def test_every_text_after_a_negated_operator_is_a_filter() -> None:
    stages = _selector('{a="b"} |= "x" or "y" !~ "z" or "w"').stages
    found = [(stage.op, [text.value for text in stage.texts]) for stage in stages if isinstance(stage, LineFilter)]
    assert found == [(LineOp.CONTAINS, ["x", "y"]), (LineOp.MATCHES_NOT, ["z"]), (LineOp.MATCHES_NOT, ["w"])]


@pytest.mark.parametrize(
    "text",
    [
        'rate({a="b"} |= "x" [5m])',
        'rate({a="b"} [5m] |= "x")',
        'rate(({a="b"} |= "x") [5m])',
        'rate((({a="b"} |= "x" [5m])))',
        'RATE ({a="b"} |= "x"[5m]) # why\n',
        'rate({a="b"} /* comment */ |= "x"[5m]) // comment',
        '(rate({a="b"}|=`x`[300s]))',
    ],
)
def test_a_range_stands_before_or_after_the_stages(text: str) -> None:
    assert parse(text) == parse('rate({a="b"} |= "x"[5m])')


def test_unwrap_may_follow_an_offset() -> None:
    texts = [
        'sum_over_time({a="b"} | unwrap x | x > 1 [5m] offset 1m)',
        'sum_over_time({a="b"} [5m] offset 1m | unwrap x | x > 1)',
        'sum_over_time(({a="b"} | unwrap x | x > 1)[5m] offset 60s)',
    ]
    trees = [parse(text) for text in texts]
    assert trees[0] == trees[1] == trees[2]
    assert isinstance(trees[0], RangeAggregate) and trees[0].range.unwrap is not None
    assert len(trees[0].range.unwrap.filters) == 1


def test_names_of_functions_are_names_of_labels_too() -> None:
    expr = parse('sum by (rate, count, ip) (count_over_time({sum="x"} | duration > 5 | bytes="y"[1m]))')
    assert isinstance(expr, VectorAggregate) and expr.grouping is not None
    assert expr.grouping.labels == ("rate", "count", "ip")


def test_numbers_are_computed_while_parsing() -> None:
    assert parse("2 ^ 3 ^ 2 - 12 / 4") == Number(509.0)
    assert parse("1 > bool 2") == parse("1 > 2") == Number(0.0)
    assert parse("5 % 0") == parse("0 / 0")


def test_operators_bind_by_precedence() -> None:
    expr = parse("vector(1) or vector(2) unless vector(3) > vector(4) + vector(5) * vector(6) ^ 2")
    assert print_expr(expr) == "vector(1) or vector(2) unless vector(3) > vector(4) + vector(5) * vector(6) ^ 2"
    ops = []
    while isinstance(expr, Binary):
        ops.append(expr.op)
        expr = expr.right
    assert ops == ["or", "unless", ">", "+", "*", "^"]


def test_modifiers_without_meaning_are_ignored() -> None:
    expr = parse("vector(1) and on (x) group_left vector(2)")
    assert isinstance(expr, Binary) and expr.matching.cardinality is Cardinality.MANY_TO_MANY
    plus = parse("vector(1) + bool 1")
    assert isinstance(plus, Binary) and not plus.return_bool


def test_positions_point_into_the_text() -> None:
    text = 'sum(rate({a="b"} | json | x > 5 [5m])) / 2'
    expr = parse(text)
    assert isinstance(expr, Binary) and isinstance(expr.left, VectorAggregate)
    inner = expr.left.expr
    assert isinstance(inner, RangeAggregate)
    assert text[inner.start : inner.end] == 'rate({a="b"} | json | x > 5 [5m])'
    stage = inner.range.selector.stages[1]
    assert text[stage.start : stage.end] == "| x > 5"
    assert text[expr.op_start] == "/"


def test_matchers_alone() -> None:
    assert parse_matchers('{a="b"}') == (Matcher("a", MatchKind.EQUAL, "b"),)
    assert parse_matchers("{}", may_match_all=True) == ()
    for text in ("{}", '{a="b"} |= "x"', "1"):
        with pytest.raises(ParseError):
            parse_matchers(text)


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("", 1, "no expression"),
        ("{", 2, "unexpected end of input inside braces"),
        ('{a="b"', 7, "unexpected end of input inside braces"),
        ('sum(rate({a="b"}[5m])', 22, "unclosed left parenthesis"),
        ('{a="b"} |= "x', 12, "unterminated quoted string"),
        ("{a='b'}", 4, "single quote"),
        ('{a="b"} | bool = 1', 11, "keyword"),
        ('{a=~"("}', 5, "cannot read regular expression"),
        ('{a!="b"}', 1, "must not match the empty value"),
        ('{a="b"} | jsn', 11, "no stage of LogQL"),
        ('{a="b"} | x > "5"', 13, "a text cannot be compared"),
        ('{a="b"} | x = ip("10.0.0.256")', 18, "as addresses"),
        ('{a="b"} |~ ip("10.0.0.1")', 12, "cannot follow"),
        ('{a="b"} | json x="a["', 18, "as the path of a field"),
        ('{a="b"} | regexp "(?P<a>.)(?P<a>.)"', 18, "there twice"),
        ('{a="b"} | pattern "<a><b>"', 19, "nothing separates"),
        ('{a="b"} |> "<a>"', 12, "has a name"),
        ('{a="b"} | label_format x=y, x="z"', 29, "formatted twice"),
        ('{a="b"} | label_format __error__="x"', 24, "cannot be formatted"),
        ('{a="b"} | line_format "{{ .x"', 23, "unclosed action"),
        ('{a="b"} | label_format x=`{{ nope }}`', 26, "nope"),
        ('count_over_time({a="b"}[5 m])', 24, "as a duration"),
        ('count_over_time({a="b"}[5m', 24, "unclosed left bracket"),
        ('rate({a="b"}[5m]) @ 5', 19, "no such modifier"),
        ('sum_over_time({a="b"}[5m])', 1, "needs unwrapped values"),
        ('bytes_rate({a="b"} | unwrap x [5m])', 1, "cannot be applied to unwrapped values"),
        ('sum_over_time({a="b"} | unwrap x | json [5m])', 36, "expected a label filter"),
        ('rate({a="b"}[5m]) by (x)', 1, 'does not take "by"'),
        ('quantile_over_time({a="b"} | unwrap x [5m])', 1, "needs a parameter"),
        ('rate(1, {a="b"}[5m])', 1, "takes no parameter"),
        ('topk(0, rate({a="b"}[5m]))', 1, "above 0"),
        ('sort(rate({a="b"}[5m])) by (x)', 1, "does not take"),
        ("sum(1 + 1)", 5, "needs a vector, not a number"),
        ('sum({a="b"})', 5, "needs a metric, not a log query"),
        ('1 + {a="b"}', 5, "is a log query"),
        ("vector(1) and 2", 15, "is a number, not a vector"),
        ("variants(vector(1)) of (x)", 1, "is not supported"),
        ('label_replace(vector(1), "a", "b", "c", "(")', 41, "cannot read regular expression"),
        ("1e400", 1, "out of range"),
        ("0x10", 1, "cannot read number"),
        ("09", 1, "octal"),
        ('{a="\\xff"}', 4, "not valid UTF-8"),
        ('{a="\\q"}', 4, "unknown escape sequence"),
        ("1 \x00 2", 3, "NUL"),
    ],
)
def test_errors_point_at_the_token(text: str, column: int, part: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert part in caught.value.reason
    assert (caught.value.line, caught.value.column) == (1, column)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('raet({a="b"}[5m])', 'did you mean "rate"?'),
        ('sum by a (rate({a="b"}[5m]))', "write it like sum(…) or sum by (service_name) (…)"),
        ('rate {a="b"}[5m]', "write it like rate(…)"),
        ('{a="b"} | unwrap c', "write it like sum_over_time({…} | unwrap latency [5m])"),
        ('{service.name="b"}', "labels have underscores in place of dots, like service_name"),
        ('{a="b"} | jsno', 'did you mean "json"?'),
        ('{a="b"} | lineformat "x"', 'did you mean "line_format"?'),
        ("sum(7)", "write vector(7)"),
    ],
)
def test_errors_say_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert caught.value.hint == hint


_LEVELS = 10_000


@pytest.mark.parametrize(
    "text",
    [
        "(" * _LEVELS + "1" + ")" * _LEVELS,
        "sum(" * _LEVELS + "vector(1)" + ")" * _LEVELS,
        "vector(2) ^ " * _LEVELS + "1",
        "vector(2) or " * _LEVELS + "vector(1)",
        "rate(" + "(" * _LEVELS + '{a="b"}[5m]' + ")" * (_LEVELS + 1),
        '{a="b"} | ' + "(" * _LEVELS + "x>1" + ")" * _LEVELS,
        '{a="b"} | ' + " or ".join(["x>1"] * _LEVELS),
        '{a="b"} | ' + ", ".join(["x>1"] * _LEVELS),
        '{a="b"}' + ' |= "x"' * (_LEVELS + 1),
        '{a="b"} |= "x"' + ' or "x"' * (_LEVELS + 1),
        "{" + ",".join(['a="b"'] * (_LEVELS + 2)) + "}",
        '{a="b"} | drop ' + ",".join(["x"] * (_LEVELS + 2)),
        '{a=~"' + "(a|b){1000}" * 4_000 + '"}',
        "x" * (MAX_TEXT_LENGTH + 1),
        '{a="b"} |= "' + "x" * (1 << 20) + '"',
        "[" * (MAX_TEXT_LENGTH - 1),
        "-" * (MAX_TEXT_LENGTH - 1),
        "5" * (MAX_TEXT_LENGTH - 1) + "m",
        '{a="b"} | json x="' + "a." * 100_000 + '"',
        '{a="b"} | pattern "' + "<a> " * 50_000 + '"',
    ],
)
def test_what_would_exhaust_us_is_refused_quickly(text: str) -> None:
    # By the thread's own clock: how busy the machine is does not matter.
    begin = time.thread_time()
    with pytest.raises(ParseError):
        parse(text)
    assert time.thread_time() - begin < 2


def test_long_queries_are_read_quickly() -> None:
    names = "|".join(f"service-{i}" for i in range(12_000))
    text = f'{{a=~"{names}"}} |= "{"x" * 60_000}" | json'
    begin = time.thread_time()
    assert isinstance(parse(text), LogSelector)
    assert time.thread_time() - begin < 2


def test_eighty_operators_in_a_row_are_read() -> None:
    text = " + ".join(["vector(1)"] * 80)
    assert print_expr(parse(text)) == text
    many = '{a="b"} | ' + " or ".join(f'x="{i}"' for i in range(80))
    assert parse(print_expr(parse(many))) == parse(many)
