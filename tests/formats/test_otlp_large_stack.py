from __future__ import annotations

import threading

import pytest

from lakerunner.formats.otlp.large_stack import run_on_large_stack


class Panic(BaseException):
    """Stands for the panic of a Rust extension."""


@pytest.mark.parametrize("levels", [10, 1_000_000])
def test_results_and_errors_come_back(levels):
    assert run_on_large_stack(lambda: 5, levels) == 5
    with pytest.raises(KeyError):
        run_on_large_stack(lambda: {}["absent"], levels)


@pytest.mark.parametrize("levels", [10, 1_000_000])
def test_a_panic_becomes_an_exception(levels):
    def panic() -> None:
        raise Panic("index out of bounds")

    with pytest.raises(ValueError, match="index out of bounds"):
        run_on_large_stack(panic, levels)


def test_the_stack_size_of_other_threads_is_left_as_it_was():
    before = threading.stack_size()
    run_on_large_stack(lambda: None, 1_000_000)
    assert threading.stack_size() == before
