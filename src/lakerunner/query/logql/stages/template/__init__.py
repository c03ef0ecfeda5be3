"""Templates of `line_format` and `label_format`: Go's `text/template`, parsed once and evaluated on whole columns."""

from lakerunner.query.logql.stages.template.parser import parse

__all__ = ["parse"]
