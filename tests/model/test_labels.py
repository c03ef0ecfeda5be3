from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.labels import LabelSet, attribute_column, prometheus_label

label_maps = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=6)


@given(label_maps)
def test_order_and_empty_values_do_not_matter(labels: dict[str, str]) -> None:
    backwards = dict(reversed(labels.items()))
    full = {name: value for name, value in labels.items() if value}
    assert LabelSet.of(labels) == LabelSet.of(backwards) == LabelSet.of(full)


@given(label_maps, label_maps)
def test_tid_tells_label_sets_apart(first: dict[str, str], second: dict[str, str]) -> None:
    a, b = LabelSet.of(first), LabelSet.of(second)
    assert (a == b) == (a.tid() == b.tid())
    assert -(1 << 63) <= a.tid() < 1 << 63


def test_tid_never_changes() -> None:
    # Written into every metric segment: another value here would split every series in two.
    assert LabelSet.of({"__name__": "up", "job": "api"}).tid(b"a key") == 6826223496015461368


@given(label_maps)
def test_another_key_gives_another_tid(labels: dict[str, str]) -> None:
    assert LabelSet.of(labels).tid(b"a key") != LabelSet.of(labels).tid(b"another")


def test_text_moved_from_name_to_value_is_another_series() -> None:
    assert LabelSet.of({"ab": "c"}).tid() != LabelSet.of({"a": "bc"}).tid()


def test_keep_without_and_with() -> None:
    labels = LabelSet.of({"a": "1", "b": "2"})
    assert labels.keep("a") == labels.without("b") == LabelSet.of({"a": "1"})
    assert labels.with_label("b", "") == LabelSet.of({"a": "1"})
    assert labels.get("absent") == ""


def test_shown_as_prometheus_shows_them() -> None:
    assert str(LabelSet.of({"__name__": "up", "path": 'a"b\\c\n'})) == 'up{path="a\\"b\\\\c\\n"}'
    assert str(LabelSet.of({})) == "{}"


@given(st.text())
def test_column_names_are_plain(key: str) -> None:
    column = attribute_column("attr", key)
    assert column.startswith("attr_")
    assert all(c.isascii() and (c.islower() or c.isdigit() or c == "_") for c in column)


@given(st.text(min_size=1))
def test_label_names_are_valid(key: str) -> None:
    label = prometheus_label(key)
    assert label.isascii()
    assert not label[0].isdigit()
    assert label.replace("_", "a").isalnum()
