"""Installs what tests need and this machine lacks: `python -m tests.components.install`.

The test command runs it beside the first tests. Otherwise several test processes would wait for one download or build.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.components.azurite import installed_azurite
from tests.components.helm import helm
from tests.components.kafka import kafka_jars
from tests.components.pubsub import pubsub_program
from tests.components.user_library import user_library

#: In the order in which tests ask for them.
COMPONENTS: tuple[Callable[[], object], ...] = (kafka_jars, user_library, installed_azurite, pubsub_program, helm)


def main() -> int:
    """Install each; what cannot be installed is written here, and said again by the tests that need it."""
    for component in COMPONENTS:
        try:
            component()
        except (pytest.skip.Exception, pytest.fail.Exception) as error:
            sys.stderr.write(f"{error.msg}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
