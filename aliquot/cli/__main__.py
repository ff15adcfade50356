"""Where the `aliquot` command begins: Ctrl-C ends it as it ends any program, from here on.

Python's own handler raises KeyboardInterrupt, in the middle of an import, too, which may then fail with another error
and another exit status. So all that takes long to import comes after.
"""

import signal


def main() -> None:
    """Run a sub-command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from aliquot.cli.commands import aliquot

    aliquot(prog_name="aliquot")


if __name__ == "__main__":
    main()
