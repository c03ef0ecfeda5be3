"""`python -m tests.query.worker.worker_process`: a query worker as its own process, from LAKERUNNER_* variables."""

from __future__ import annotations

import os
import sys

from lakerunner.query.worker.role import QueryWorker
from lakerunner.runtime.run import run_role
from lakerunner.runtime.settings_load import load_settings

if __name__ == "__main__":
    sys.exit(run_role(QueryWorker, load_settings(env=os.environ)))
