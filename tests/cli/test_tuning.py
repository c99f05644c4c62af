from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc, resource, sys
from trilogue import tuning
tuning.tune_process()
tuning.freeze_garbage()
assert sys.getswitchinterval() == tuning.SWITCH_INTERVAL_S
assert gc.get_threshold() == tuning.GC_THRESHOLDS
assert gc.get_freeze_count() > 1000
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, hard), hard))
assert tuning.raise_descriptor_limit() == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
loop = tuning.new_event_loop()
loop.run_until_complete(loop.run_in_executor(None, int))
loop.close()
sys.modules["uvloop"] = None
assert type(tuning.new_event_loop()).__module__.startswith("asyncio")
print("tuned")
"""


def test_a_process_is_tuned() -> None:
    """In a process of its own, since all of it is for good."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "tuned\n", done.stderr
