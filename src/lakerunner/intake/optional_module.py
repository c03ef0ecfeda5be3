"""Import libraries of cloud providers on first use. They are optional: pip extras install them."""

from __future__ import annotations

import importlib
from typing import Any

from lakerunner.model.errors import BadInput


def require_module(module: str, extra: str, setting: str) -> Any:
    """Import the module, or raise an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise BadInput(
            f"cannot use {setting}: the Python module {module} is not installed",
            hint=f"run pip install 'lakerunner[{extra}]'",
            where=setting,
        ) from None
