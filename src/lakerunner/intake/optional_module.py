"""Libraries of cloud providers, which are extras: imported when first used, and named when they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from lakerunner.model.errors import BadInput


def require_module(module: str, extra: str, setting: str) -> Any:
    """The module; without it an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise BadInput(
            f"cannot use {setting}: the package of {module} is not installed",
            hint=f"pip install 'lakerunner[{extra}]'",
            where=setting,
        ) from None
