"""The role as a separate process, for tests that kill it. Settings come from the environment."""

from __future__ import annotations

import os
import sys

from lakerunner.intake.role import Pubsub
from lakerunner.runtime.run import run_role
from lakerunner.runtime.settings.load import load_settings

if __name__ == "__main__":
    sys.exit(run_role(Pubsub, load_settings(env=os.environ)))
