"""How every command line of Espalier turns errors into messages and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from espalier.errors import EspalierError


def run_command(command: Callable[[], None]) -> None:
    """Run a command line to its end and exit.

    `UserError` and `OSError` (a folder that cannot be written, a full disk) exit with 2,
    `VerificationMismatch` with 1, all with the message alone on stderr; Ctrl-C exits with 130. Any other
    exception is a bug and keeps its traceback.
    """
    try:
        command()
    except EspalierError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        print(f"error: cannot read or write{place}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
