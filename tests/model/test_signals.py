import pyarrow as pa
import pytest

from lakerunner.model.errors import BadInput, Bug
from lakerunner.model.signal import Signal, Table
from lakerunner.model.signals import SIGNALS, signal_named


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_descriptions_hold_together(signal: Signal) -> None:
    names = {column.name for column in signal.rows.columns}
    assert signal.time_column in names
    assert set(signal.dedup_key) <= names
    assert set(signal.pruning) <= names
    assert pa.types.is_timestamp(signal.rows.schema().field(signal.time_column).type)
    assert not signal.rows.schema().field(signal.time_column).nullable


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_every_column_says_what_it_is(signal: Signal) -> None:
    for table in signal.tables:
        assert all(column.doc.endswith(".") for column in table.columns)


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_found_by_name(signal: Signal) -> None:
    assert signal_named(signal.name) is signal


def test_a_wrong_name_gets_the_nearest_right_one() -> None:
    with pytest.raises(BadInput, match="did you mean traces"):
        signal_named("trace")


def test_a_table_must_know_its_sort_columns() -> None:
    with pytest.raises(Bug):
        Table(suffix="", columns=(), sort_key=("nowhere",))
