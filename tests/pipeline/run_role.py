"""One role of the pipeline as a process of its own: `python -m tests.pipeline.run_role NAME`."""

from __future__ import annotations

import os
import sys

from lakerunner.pipeline.stages import stage_roles
from lakerunner.runtime.run import run_role
from lakerunner.runtime.settings.load import load_settings

ROLES = {role.name: role for role in stage_roles()}

if __name__ == "__main__":
    sys.exit(run_role(ROLES[sys.argv[1]], load_settings(env=os.environ)))
