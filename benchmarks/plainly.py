"""How the scripts end where the user must change something: with one line, as concurl does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from concurl.errors import UserError


def plainly(main: Callable[[], int | None]) -> None:
    try:
        sys.exit(main())
    except UserError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(2)
    except subprocess.CalledProcessError as error:  # a concurl that was called; it has said why
        sys.exit(error.returncode)
