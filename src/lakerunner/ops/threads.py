"""How a process stays without threads, which it must if it forks."""

from __future__ import annotations

#: Linear algebra, and an allocator of Arrow that we do not use, start threads when they are imported.
WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
