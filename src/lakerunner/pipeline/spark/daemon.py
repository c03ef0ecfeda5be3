"""The process that Spark forks its Python workers from, with what their tasks import already there.

Spark's own daemon imports nothing, and each worker imports the same 130 MB in two seconds. Forks share them. As in the
fork server of `serve`, nothing may run beside the thread that forks; if an import has started a thread, Spark's daemon
takes over.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from pathlib import Path

from lakerunner.runtime.kernel_cache import share_kernel_cache

#: The modules to import, with commas between them.
PRELOAD = "LAKERUNNER_SPARK_PRELOAD"
#: Linear algebra, and an allocator of Arrow that we do not use, start threads when they are imported.
_WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def main() -> None:
    os.environ.update(_WITHOUT_THREADS)
    for name in filter(None, os.environ.get(PRELOAD, "").split(",")):
        # The worker that needs it says why it cannot be imported.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "numba" in sys.modules:
        share_kernel_cache()
    importlib.import_module("pyspark.worker")
    if len(list(Path("/proc/self/task").iterdir())) != 1:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    # A collection in a worker would otherwise touch, and so copy, every page.
    gc.freeze()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
