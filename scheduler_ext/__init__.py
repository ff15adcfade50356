"""The scheduler extender: decides which pod gets which part of which card."""

import os

# Read when numpy is imported, by what it multiplies matrices with: it would start a thread for every core, of which
# vectors of a few dozen numbers have no use.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
