"""Commands, options and help texts. The work behind a command is imported when it runs."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

import kernelweave
from kernelweave.cli import options
from kernelweave.errors import InvalidInputError, visible
from kernelweave.validation import parse_time

# Set by --traceback; an environment variable so that it also reaches errors before any command.
_TRACEBACK = "KERNELWEAVE_TRACEBACK"
INTERRUPTED = 130
_FIGURES = (".png", ".pdf", ".svg")
_TABLES = (".csv", ".tsv", ".parquet", ".json", ".npy")

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
    message = escape(visible(str(error), lines=True) or type(error).__name__)
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


def _examples(*lines: tuple[str, str]) -> str:
    """Lay out example commands for the end of a help text."""
    shown = "\n\n".join(f"[green]{escape(command)}[/]  {text}" for command, text in lines)
    return f"[bold]Examples[/]\n\n{shown}"


def _ends_at_ctrl_c(command: Callable[..., Any]) -> Callable[..., Any]:
    """Make a command end quietly, with the shell's own code, when it is interrupted."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs)
        except KeyboardInterrupt:
            Console(stderr=True).print("\n  interrupted; nothing was saved", style="yellow")
            code = INTERRUPTED
        if code:
            raise typer.Exit(code)

    return run


def _given(ctx: typer.Context, **files: tuple[str, ...]) -> dict[str, Any]:
    """The options of a command that have a value; files to write must end as given, if at all."""
    from kernelweave.cli.output import check_file

    items = ctx.params.items()
    given = {name: getattr(v, "value", v) for name, v in items if v is not None}
    for name, suffixes in files.items():
        if name in given:
            given[name] = check_file(f"--{name}", given[name], suffixes)
    if "time_limit" in given:
        text = given["time_limit"]
        seconds = parse_time(text if text.strip()[-1:].isalpha() else f"{text}s")
        if seconds is None:
            raise InvalidInputError(
                f"--time-limit must be a time such as 90s, 5min or 1.5h; got {text!r}."
            )
        given["time_limit"] = seconds
    return given


@app.callback(
    epilog=_examples(
        ("kernelweave demo", "see a fit on real data, in seconds"),
        ("kernelweave fit patients.csv --target outcome --report fit.html", "which columns matter"),
        ("kernelweave COMMAND --help", "every option, with examples"),
    )
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
    """Learn which kernels to trust: multiple kernel learning, with a certificate.

    Exit codes: 0 done, 1 wrong data or settings, 2 wrong usage, 130 interrupted.
    """


@app.command(
    epilog=_examples(
        ("kernelweave demo", ""),
        ("kernelweave demo --seed 3 --C 10", "another split, less regularisation"),
        ("kernelweave demo --tol 1e-5 --figure out/fit.png", "a tighter certificate"),
    )
)
@_ends_at_ctrl_c
def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the 70/30 split.")] = 0,
    C: Annotated[float, typer.Option("--C", help="Weight of the loss, as in an SVM.")] = 1.0,
    tol: Annotated[float, typer.Option(help="Relative duality gap to reach.")] = 1e-3,
    figure: options.Figure = Path("kernelweave-demo.png"),
) -> None:
    """Fit scikit-learn's breast cancer data with the 403 kernels of the SimpleMKL family.

    Compares it with equal weights and the best single kernel; prints a table, saves a figure.
    """
    from kernelweave.cli.output import check_file

    figure = check_file("--figure", figure, _FIGURES)
    with Console().status("loading"):
        from kernelweave.cli.demo import run_demo

    run_demo(seed=seed, C=C, tol=tol, figure=figure)


@app.command(
    epilog=_examples(
        ("kernelweave fit patients.csv --target outcome", "learn, and see what matters"),
        ("kernelweave fit patients.csv -t outcome --report fit.html --model fit.skops", "keep it"),
        (
            "kernelweave fit omics.parquet -t subtype --view 'rna=rna_*' --view 'clinical=age,sex'",
            "",
        ),
        ("kernelweave fit patients.csv -t outcome --kernel-matrix network=K.npy --cv 5", ""),
        ("kernelweave fit sites.fasta -t label --time-limit 5min", "sequences, five minutes"),
        ("kernelweave fit sensors.csv --task outlier --nu 0.05", "what is unusual?"),
    )
)
@_ends_at_ctrl_c
def fit(
    ctx: typer.Context,
    data: options.DataFile,
    target: options.Target = None,
    task: options.TaskOption = options.Task.auto,
    kernels: options.Kernels = "default",
    view: options.View = None,
    kernel_matrix: options.Matrix = None,
    solver: Annotated[
        str,
        options.model(
            help="auto, active-set, silp, spicy, spg, mwu, ..., or bayes (a posterior).",
            autocompletion=options.solvers,
        ),
    ] = "auto",
    C: options.COption = None,
    cv: Annotated[
        int | None, options.model(min=2, metavar="FOLDS", help="Choose C by cross-validation.")
    ] = None,
    loss: options.Loss = None,
    regularizer: options.Regularizer = None,
    balanced: Annotated[
        bool, options.model("--balanced", help="Give every class the same weight.")
    ] = False,
    nu: Annotated[float, options.model(help="Share of outliers to expect (--task outlier).")] = 0.1,
    tol: options.Tol = None,
    test_size: options.TestSize = 0.2,
    report: Annotated[
        Path | None, options.output(metavar="R.html", help="Write a report, one HTML file.")
    ] = None,
    model: Annotated[
        Path | None, options.output(metavar="M.skops", help="Save the model for 'predict'.")
    ] = None,
    time_limit: options.TimeLimit = None,
    cache_mb: options.CacheMB = None,
    n_jobs: options.Jobs = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Learn a combination of kernels from a file, and say which ones matter.

    Ctrl-C ends the fit with the best model so far, which is scored, reported and saved.
    """
    from kernelweave.cli.output import Output

    out = Output(json=json, quiet=quiet)
    given = _given(ctx, report=(".html", ".htm"), model=())
    with out.console.status("loading"):
        from kernelweave.cli.fit import run_fit

    return run_fit(given, out)


@app.command(
    epilog=_examples(
        ("kernelweave predict fit.skops new.csv", "a column of predictions"),
        ("kernelweave predict fit.skops new.csv --proba -o out.parquet", "with probabilities"),
        ("kernelweave predict fit.skops new.csv --kernel-matrix network=K_new.npy", ""),
    )
)
@_ends_at_ctrl_c
def predict(
    ctx: typer.Context,
    model: options.ModelFile,
    data: options.DataFile,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add a probability for each class.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="CSV, TSV, Parquet, JSON or NPY. \\[default: the screen]"
        ),
    ] = None,
    kernel_matrix: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE", help="Kernel values: new rows by those of the fit. Repeat."
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Write text of CSV and TSV as it is, even what a spreadsheet would run."
        ),
    ] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="A type of your own that the file may hold. Repeat."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Predict the rows of a file with a saved model."""
    from kernelweave.cli.output import Output

    # The predictions themselves go to standard output; what is said about them does not.
    out = Output(json=json, quiet=quiet, to_stderr=output is None)
    given = _given(ctx, output=_TABLES)
    with out.console.status("loading"):
        from kernelweave.cli.predict import run_predict

    return run_predict(given, out)


@app.command(epilog=_examples(("kernelweave inspect fit.skops", ""), ("... --json", "all of it")))
@_ends_at_ctrl_c
def inspect(
    model: options.ModelFile,
    top: Annotated[int, typer.Option(min=1, help="How many kernels to list.")] = 20,
    json: options.Json = False,
) -> int:
    """Show what a model file holds, without running anything in it."""
    from kernelweave.cli.output import Output
    from kernelweave.cli.predict import run_inspect

    return run_inspect(model, top, Output(json=json))


@app.command(
    epilog=_examples(
        ("kernelweave compare patients.csv --target outcome", ""),
        ("kernelweave compare a1a.libsvm --solvers spg,silp,mwu --splits 5 --time-limit 2min", ""),
    )
)
@_ends_at_ctrl_c
def compare(
    ctx: typer.Context,
    data: options.DataFile,
    target: options.Target = None,
    solvers: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Their names, with commas between.",
            autocompletion=options.solver_list,
        ),
    ] = "active-set,silp,spg,spicy,mwu,bayes,uniform",
    task: options.TaskOption = options.Task.auto,
    kernels: options.Kernels = "default",
    view: options.View = None,
    kernel_matrix: options.Matrix = None,
    C: options.COption = None,
    loss: options.Loss = None,
    regularizer: options.Regularizer = None,
    tol: options.Tol = None,
    test_size: options.TestSize = 0.3,
    splits: Annotated[int, typer.Option(min=1, help="How many splits.")] = 3,
    time_limit: options.TimeLimit = None,
    figure: options.Figure = Path("kernelweave-compare.png"),
    cache_mb: options.CacheMB = None,
    n_jobs: options.Jobs = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Fit several solvers on the same splits: accuracy, time, gap and kernels kept."""
    from kernelweave.cli.output import Output

    out = Output(json=json, quiet=quiet)
    given = _given(ctx, figure=_FIGURES)
    names = [name.strip() for name in solvers.split(",") if name.strip()]
    if not names:
        raise InvalidInputError("--solvers needs at least one name, such as spg,silp,mwu.")
    with out.console.status("loading"):
        from kernelweave.cli.fit import run_compare

    return run_compare(given, names, out)
