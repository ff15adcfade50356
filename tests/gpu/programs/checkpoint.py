"""Has another process checkpointed and restored, as its pid and a word for each step on stdin say."""

import ctypes
import sys

driver = ctypes.CDLL("libcuda.so.1")
pid = int(sys.argv[1])
STEPS = {
    "aside": ("cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint"),
    "back": ("cuCheckpointProcessRestore", "cuCheckpointProcessUnlock"),
}
if status := driver.cuInit(0):
    sys.exit(f"CUDA says {status}")
print("ready", flush=True)
for line in sys.stdin:
    print(*(getattr(driver, name)(pid, None) for name in STEPS[line.strip()]), flush=True)
