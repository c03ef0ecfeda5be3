"""Asking the lake: languages, planning, fan-out, evaluation, streaming."""
