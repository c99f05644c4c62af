"""What a process that serves sets once for itself: memory, threads, garbage collection, descriptors. Each reason is measured in HOTPATH or DESIGN."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
import sys

import structlog

MIB = 1 << 20
# From malloc.h. By default large buffers are mapped, faulted in and unmapped for each read and each batch.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3
MALLOC = ((M_MMAP_THRESHOLD, 32 * MIB), (M_TRIM_THRESHOLD, 256 * MIB), (M_TOP_PAD, 16 * MIB))

# The sync thread waits that long for the interpreter after each system call; the default, 5 ms, is twenty syncs.
SWITCH_INTERVAL_S = 0.0005
GC_THRESHOLDS = (50_000, 20, 100)
DESCRIPTORS_WANTED = 4_096

logger = structlog.get_logger("node")


def tune_process() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in MALLOC:
            mallopt(parameter, value)


def freeze_garbage() -> None:
    """Everything made so far stays, so the collector need not look at it again."""
    gc.collect()
    gc.freeze()


def raise_descriptor_limit() -> int:
    """As many as the system lets us have; returns how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft < DESCRIPTORS_WANTED:
        logger.warning("few descriptors", limit=soft, wanted=DESCRIPTORS_WANTED, hint="ulimit -n")
    return soft


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
