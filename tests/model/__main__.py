"""Plays random histories: `python -m tests.model --histories 200`.

A history is the same in every process: the process is started anew with a fixed PYTHONHASHSEED, and lives by virtual
time before anything of the extender is imported.
"""

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.model", *sys.argv[1:]])  # noqa: S606 - this very program

from tests.model import virtual_time

virtual_time.install()

from tests.model.program import main  # noqa: E402 - the clock has to be in place before

sys.exit(main(sys.argv[1:]))
