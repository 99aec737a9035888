"""Commands, options and help texts. The work behind a command is imported when it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import kernelweave
from kernelweave.errors import InvalidInputError

__all__ = ["app", "report_error"]

# Set by --traceback; an environment variable so that it also reaches errors before any command.
_TRACEBACK = "KERNELWEAVE_TRACEBACK"

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def report_error(error: Exception) -> int:
    """Print an error as one line, or whole if ``--traceback`` was given; return the exit code."""
    console = Console(stderr=True, highlight=False)
    if os.environ.get(_TRACEBACK):
        console.print_exception()
        return 1
    message = escape(str(error) or type(error).__name__)
    console.print(f"[bold red]error:[/] {message}", soft_wrap=True)
    if not isinstance(error, (ValueError, OSError, MemoryError)):
        # Not a mistake of the caller's: say how to find out more.
        console.print(
            f"({type(error).__name__}; run [bold]kernelweave --traceback ...[/] to see where)",
            style="dim",
        )
    return 1


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelweave {kernelweave.__version__}")
        raise typer.Exit


def _keep_traceback(wanted: bool) -> None:
    if wanted:
        os.environ[_TRACEBACK] = "1"


def _check_figure(figure: Path) -> Path:
    """Refuse before the work what cannot be saved after it."""
    allowed = (".png", ".pdf", ".svg")
    if figure.suffix.lower() not in allowed:
        raise InvalidInputError(f"--figure must end in {', '.join(allowed)}; got {str(figure)!r}.")
    if not figure.absolute().parent.is_dir():
        raise InvalidInputError(f"--figure: there is no folder {str(figure.absolute().parent)!r}.")
    return figure.absolute()


@app.callback(
    epilog="[bold]Examples[/]\n\n"
    "[green]kernelweave demo[/]  see a fit on real data, in seconds\n\n"
    "[green]kernelweave demo --seed 3 --figure weights.png[/]  another split, figure elsewhere"
)
def kernelweave_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback", callback=_keep_traceback, help="Show Python tracebacks of errors."
        ),
    ] = False,
) -> None:
    """Learn which kernels to trust: multiple kernel learning, with a certificate."""


@app.command(
    epilog="[bold]Examples[/]\n\n"
    "[green]kernelweave demo[/]\n\n"
    "[green]kernelweave demo --seed 3 --C 10[/]  another split, less regularisation\n\n"
    "[green]kernelweave demo --tol 1e-5 --figure out/fit.png[/]  a tighter certificate"
)
def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the 70/30 split.")] = 0,
    C: Annotated[float, typer.Option("--C", help="Weight of the loss, as in an SVM.")] = 1.0,
    tol: Annotated[float, typer.Option(help="Relative duality gap to reach.")] = 1e-3,
    figure: Annotated[
        Path, typer.Option(dir_okay=False, help="Where to save the figure (PNG, PDF or SVG).")
    ] = Path("kernelweave-demo.png"),
) -> None:
    """Fit scikit-learn's breast cancer data with the 403 kernels of the SimpleMKL family.

    Compares it with equal weights and the best single kernel; prints a table, saves a figure.
    """
    figure = _check_figure(figure)
    with Console().status("loading"):
        from kernelweave.cli.demo import run_demo

    run_demo(seed=seed, C=C, tol=tol, figure=figure)
