"""Series selectors of a request: its `match[]` parameters, or the selectors of its expression."""

from __future__ import annotations

from lakerunner.model.errors import BadInput
from lakerunner.query.promql.ast import Expr, VectorSelector, unwrapped, walk
from lakerunner.query.promql.parser import parse
from lakerunner.query.series.matchers import Selector
from lakerunner.serve.params import Params


def selectors_in(params: Params, name: str = "match[]", *, required: bool = False) -> list[Selector]:
    texts = params.texts(name)
    if required and not texts:
        raise BadInput(f'invalid parameter "{name}": no {name} parameter provided')
    return [_selector(name, text) for text in texts]


def _selector(name: str, text: str) -> Selector:
    """Parse a plain selector to its matchers, at least one of which must not match the empty string."""
    node = unwrapped(parse(text))
    if not isinstance(node, VectorSelector) or node.offset is not None or node.at is not None:
        raise BadInput(f'invalid parameter "{name}": {text[:100]!r} is not a series selector')
    return node.matchers


def selectors_of(expr: Expr) -> list[Selector]:
    """The matchers of all selectors in an expression."""
    return [node.matchers for node in walk(expr) if isinstance(node, VectorSelector)]
