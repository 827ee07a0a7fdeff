"""The command line. A verb's file is imported when it is called for: `concurl --help` does not wait for torch."""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import os
import select
import signal
import sys
from contextlib import suppress

from concurl import __version__
from concurl.errors import RunError, UserError, call, one_line, said_by, tells_of_memory
from concurl.training.interrupt import Terminated, termination_as_exception

VERBS = {
    "fit": "train on a folder of images (or a benchmark) and label them",
    "predict": "label images, new ones or old, with a run's model",
    "merge": "join the parts that predict --shard wrote",
    "report": "make a run's page again: with names, or scores",
    "export": "a folder per cluster, or the model for other tools",
    "audit": "look through a folder of images before anything is trained",
    "pack": "put many small files into a few large ones (tar shards)",
    "suggest": "how many clusters? try many K on a run's features",
    "evaluate": "score a run against labels",
    "demo": "try it on 1,797 handwritten digits: minutes on a CPU, no download",
}

OVERVIEW = f"""concurl clusters unlabelled images.

usage: concurl VERB ...   (concurl VERB --help tells more)

{chr(10).join(f"  {verb:10} {text}" for verb, text in VERBS.items())}

  concurl fit PHOTOS -k 10 -o runs/photos     pictures in; clusters and page out
  concurl predict runs/photos NEW -o new.csv  label new pictures"""


SYNONYMS = {
    "train": "fit",
    "cluster": "fit",
    "run": "fit",
    "label": "predict",
    "classify": "predict",
    "score": "evaluate",
    "resume": "fit --resume",
    "continue": "fit --resume",
    "sort": "export",
    "folders": "export",
    "check": "audit",
    "inspect": "audit",
    "show": "report",
    "open": "report",
    "page": "report",
    "names": "report",
    "rename": "report",
    "version": "--version",
}
ALONE = ("--help", "--version")  # what is said without a verb


def main(argv: list[str] | None = None) -> int:
    """Run a verb.

    The exit code is 0; 2 for wrong use; 1 where the run cannot go on (diverged, out of memory, --strict); 74 for a
    full or failing disk; 129, 130 or 143 for SIGHUP, SIGINT or SIGTERM; 141 where nobody reads the output any more.
    """
    arguments = sys.argv[1:] if argv is None else argv
    # A service may start us with closed streams: Python has None for them, and the next file opened would take their number.
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # As stderr is: a day's work must not end in an error because the terminal cannot show a folder's name.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with termination_as_exception():
            code = _run(arguments)
            sys.stdout.flush()
            return code
    except UserError as error:
        _say(error)
        return 2
    except RunError as error:
        _say(error)
        return error.exit_code
    except (MemoryError, RuntimeError) as error:  # what trains knows more to say (training/memory.py)
        if not tells_of_memory(error):
            raise
        _say(f"out of memory ({said_by(error)}): end other programs that use it, or try another --device or machine")
        return 1
    except UnicodeError:
        encoding = sys.getfilesystemencoding()
        if encoding == "utf-8":
            raise
        _say(f"in this locale ({encoding}) the name of a file cannot be spelt; set PYTHONUTF8=1, and call this again")
        return 2
    except OSError as error:  # one that nobody expected: mostly a disk that failed in the middle of the work
        if isinstance(error, BrokenPipeError) and _unread():
            return 141  # `concurl ... | head`: who has read enough needs no message
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        denied = isinstance(error, PermissionError)
        hint = "; see who may read and write it" if denied else ""
        _say(f"{where}{error.strerror or error}{hint}")
        return 2 if denied or error.errno == errno.ENAMETOOLONG else 74
    except KeyboardInterrupt as stop:
        if argv is None:  # a process of its own, which ends now
            _ignore_interrupts()
        _say("stopped")
        return 128 + (stop.number if isinstance(stop, Terminated) else signal.SIGINT)


def _ignore_interrupts() -> None:
    """For someone who goes on pressing Ctrl-C there is no traceback to see."""
    while signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        with suppress(KeyboardInterrupt):  # signal() first raises what has come meanwhile, and sets nothing
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and arguments[1:2]:
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(OVERVIEW)
        return 0 if arguments else 2
    verb, rest = arguments[0], arguments[1:]
    if verb in ("-V", "--version"):
        print(f"concurl {__version__}")
        return 0
    if verb not in VERBS:
        raise UserError(f"unknown verb {verb!r}{_meant(verb)} (there are: {', '.join(VERBS)})")
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the current folder is not there any more; cd to one that is") from None
    code: int = importlib.import_module(f"concurl.commands.{verb}").main(rest)
    return code


def _say(words: object) -> None:
    from concurl.progress import end_bars

    with suppress(OSError):  # the terminal may be gone: the exit code still says what happened
        end_bars()
        print(f"concurl: {one_line(words)}", file=sys.stderr)


def _unread() -> bool:
    """Is it our own output, and not a worker's pipe, that nobody reads any more? The rest of it then goes nowhere."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    unread = any(event & select.POLLERR for _, event in output.poll(0))
    if unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return unread


def _meant(word: str) -> str:
    if os.path.exists(word):
        run = f"runs/{os.path.basename(os.path.abspath(word))}"
        return f"; did you mean {call('fit', word, '-k', 10, '-o', run)}?"
    if word.startswith("-") and not difflib.get_close_matches(word, ALONE, n=1):
        return "; the verb comes first"
    meant = SYNONYMS.get(word.lower())  # first: sort looks like report
    near = [meant] if meant else difflib.get_close_matches(word.lower(), [*VERBS, *ALONE], n=1)
    return f"; did you mean {near[0]}?" if near else ""
