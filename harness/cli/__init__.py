"""The `outcore` command: one file per verb, found by listing this folder; input errors
print one sentence."""

from __future__ import annotations

import errno
import gc
import importlib
import importlib.metadata
import io
import json
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from harness.cli.common import Verbs
from harness.progress import Progress
from workloads.errors import OutcoreError, fault_of, is_of_host

# click's own exceptions, wherever this version of Typer keeps them.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
_CLICK_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
#: Exit code of an error that no code below stands for: a fault of Outcore itself.
FAULT = 4
#: Commands whose exit code 1 is a decision, and never an error.
_DECIDING = ("regress",)
#: What is wrong with a path that was given, rather than with the disk.
_WRONG_PLACE = (
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EROFS,
)


def build_app(only: str = "") -> typer.Typer:
    """Build the command from this folder's modules: all, or that of one verb, so that
    no other's are loaded.

    A verb is the function of its module's name, a group of verbs its module's `app`.
    """
    app = Verbs(
        name="outcore",
        help="Measure how fast graph neural networks train when their graph does not "
        "fit in memory.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(
        _start
    )  # without a callback, a command of one verb would leave out the verb's name
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in [only] if only in names else names:
        module = importlib.import_module(f"{__name__}.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        elif hasattr(module, name):
            app.verb(getattr(module, name))
    return app if app.registered_groups or app.registered_commands else build_app()


def _tell_version(wanted: bool) -> None:
    """Print the version, and the commit where it is known."""
    if not wanted:
        return
    from harness.records.environment import code, git_refusal

    found = code()
    commit = (
        f" (commit {found['commit']}{', with changes' if found['dirty'] else ''})"
        if found["commit"]
        else ""
    )
    if found.get("refused"):
        commit = (
            " (commit unknown: git refuses this checkout, which another user owns; "
            f"{git_refusal()})"
        )
    print(f"outcore {importlib.metadata.version('outcore')}{commit}")
    raise typer.Exit


def _start(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_tell_version,
            is_eager=True,
            help="print version and commit",
        ),
    ] = False,
) -> None:
    """Take the options of the command itself."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line. An input error prints one sentence and its fix, a bug its
    traceback."""
    if argv is None:
        gc.set_threshold(
            50_000
        )  # imports, most of a command, make no garbage to look for
        _make_streams_safe()
    try:
        sys.exit(_run(list(sys.argv[1:] if argv is None else argv)))
    except ModuleNotFoundError:
        raise  # `outcore.command` names the extra that brings the package
    except Exception:
        if argv is not None:
            raise
        traceback.print_exc()
        sys.exit(FAULT)
    finally:
        _let_go_of_stderr()


def _let_go_of_stderr() -> None:
    """Drop text that nobody can read (the reader has gone, a file is full): Python
    would end with 120 in place of the command's code."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _make_streams_safe() -> None:
    """Make printing never fail for its characters, or for a standard stream that is
    closed: no run is lost by it."""
    for number, name, mode in (
        (0, "stdin", "r"),
        (1, "stdout", "w"),
        (2, "stderr", "w"),
    ):
        stream = getattr(sys, name)
        if stream is None:
            # In ascending order, so that no data file gets the number of a closed
            # stream.
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number, inheritable=True)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    words = (word for word in arguments if not word.startswith("-"))
    verb = next(words, "").replace("-", "_")
    failed = FAULT if verb in _DECIDING else 1
    try:
        try:
            code = build_app(verb)(
                args=arguments, prog_name="outcore", standalone_mode=False
            )
        finally:
            Progress.end_all()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except OutcoreError as error:
        code = failed if error.exit_code == 1 else error.exit_code
        return _report(error.kind, error.message, error.fix, code, as_json)
    except _CLICK_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(getattr(error, "message", ""))
            return 0
        where = getattr(getattr(error, "ctx", None), "command_path", "outcore")
        message = (
            error.format_message() if hasattr(error, "format_message") else str(error)
        )
        fix = f"see `{where} --help`" if isinstance(error, _USAGE_ERROR) else ""
        return _report("input", message.rstrip("."), fix, 2, as_json)
    except typer.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("outcore: stopped", file=sys.stderr)
        return 130
    except (BrokenPipeError, SystemExit) as error:
        # The libraries below turn a closed pipe into an exit.
        if not isinstance(error, BrokenPipeError) and not isinstance(
            error.__context__, BrokenPipeError
        ):
            raise
        # The reader closed the pipe (`| head`): discard the buffered output, and end as
        # a process does by the signal.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EIO):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _report(
                "io",
                f"the output cannot be written: {error.strerror}",
                "write it elsewhere",
                failed,
                False,
            )
        if error.filename is None and not is_of_host(error):
            raise
        code = 2 if error.errno in _WRONG_PLACE else failed
        reason, fix = fault_of(error, "choose another path, or check its permissions")
        where = f"{error.filename}: " if error.filename is not None else ""
        return _report(
            "input" if code == 2 else "io", f"{where}{reason}", fix, code, as_json
        )


def _report(kind: str, message: str, fix: str, code: int, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": {"kind": kind, "message": message, "fix": fix}}))
    from harness.cli.table import printable

    text = f"outcore: {message}" + (f"; {fix}" if fix else "")
    print(
        "\n".join(map(printable, text.splitlines())), file=sys.stderr
    )  # a message may be a worker's
    return code
