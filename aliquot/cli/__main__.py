"""Where the `aliquot` command begins: Ctrl-C ends it as it ends any program, from here on.

Python's own handler raises KeyboardInterrupt, in the middle of an import, too, which may then fail with another error
and another exit status. So all that takes long to import comes after.
"""

import errno
import io
import os
import signal
import sys

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def main() -> None:
    """Run a sub-command."""
    _fill_standard_files()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _call()
    except OSError as error:
        if error.filename is not None or error.errno not in CANNOT_WRITE:
            raise
        sys.stdout = io.StringIO()  # the old one would be tried again at the end
        sys.exit(f"aliquot: cannot write: {error.strerror}")


def _call() -> None:
    """Run the sub-command, and have all of its output written while a failure can be told."""
    from aliquot.cli.command_group import aliquot

    try:
        aliquot(prog_name="aliquot")
    finally:
        if sys.stdout:
            sys.stdout.flush()


def _fill_standard_files() -> None:
    """Opens those of descriptors 0 to 2 that are closed, or the next file opened would be a command's standard output.

    What is opened here is closed on exec: a command finds them as the caller left them. It cannot be written either, so
    that what is printed where standard output was closed is told to be lost, as on a full disk.
    """
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= STANDARD_ERROR:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = os.fdopen(STANDARD_OUTPUT, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = io.StringIO()  # click would print errors on standard output


if __name__ == "__main__":
    main()
