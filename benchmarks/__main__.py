"""Whether to believe us: ``python -m benchmarks``, from the root of the repository.

    python -m benchmarks                         # a look at everything, about ten minutes
    python -m benchmarks --full --data-dir DIR   # all of it, hours
    python -m benchmarks --parts guard limit     # some parts
    python -m benchmarks compare A B             # two runs: what has become slower?

Data sets come from --data-dir or KERNELWEAVE_DATA, else from OpenML, else from packages; a part
says what it could not find. Results go to benchmark-results/COMMIT.json (and .md, for people).
"""

import argparse
import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from benchmarks.part import Settings, read_settings
from benchmarks.results import changes, describe_run, read_results, write_results
from benchmarks.show import table
from benchmarks.timing import Clock, seconds_of

PARTS = ("guard", "limit", "growth", "papers", "helps", "peers")


def run(settings: Settings, parts: list[str]) -> int:
    """Measure the parts asked for; what is done so far is on disk after each of them."""
    clock = Clock()
    results: dict[str, Any] = {**describe_run(settings.full, settings.seed), "parts": {}}
    name = results["commit"] + ("-full" if settings.full else "")
    told = [f"# kernelweave at {name}\n"]
    failed = []
    for part in parts:
        text = _measure(part, settings, clock, results)
        if text is None:
            failed.append(part)
            continue
        told.append(text)
        print(text, flush=True)
        results["timings"] = clock.timings
        write_results(settings.out / f"{name}.json", results)
        (settings.out / f"{name}.md").write_text("\n".join(told), encoding="utf-8")
    print(f"results: {settings.out / name}.json and .md")
    if failed:
        print(f"failed: {', '.join(failed)} (see above)", file=sys.stderr)
    return 1 if failed else 0


def _measure(part: str, settings: Settings, clock: Clock, results: dict[str, Any]) -> str | None:
    """Run one part and return what it has to tell; None if it failed, after saying why."""
    module = importlib.import_module(f"benchmarks.{part}.__main__")
    settings.say(f"{part}: {module.TITLE}")
    try:
        seconds, result = seconds_of(lambda: module.measure(settings, clock))
    except Exception:  # one part that fails must not cost the others
        traceback.print_exc()
        return None
    results["parts"][part] = {"seconds": seconds, **result}
    return f"## {module.TITLE}\n\n{module.tell(result)}\n\n({part}: {seconds:.0f} s)\n"


def compare(options: argparse.Namespace) -> int:
    """Print what two runs have in common; exit code 1 if something has become slower."""
    before, after = (read_results(name, options.out) for name in (options.before, options.after))
    found = changes(before, after)
    if not found:
        raise SystemExit("the two runs have no timing in common")
    rows = []
    for change in found:
        mark = "slower" if change.ratio > options.threshold else ""
        mark = "faster" if change.ratio < 1 / options.threshold else mark
        old, new = (f"{seconds:.3f} s" for seconds in change.seconds)
        rows.append([change.name, old, new, f"{change.ratio:.2f} x", mark])
    heads = ["work", before["commit"], after["commit"], "by the reference", ""]
    print(table(heads, rows))
    slower = [change.name for change in found if change.ratio > options.threshold]
    print(f"\n{len(slower)} of {len(found)} are more than {options.threshold:g} times slower")
    return 1 if slower else 0


def main() -> int:
    if sys.argv[1:2] != ["compare"]:
        settings, options = read_settings(__doc__, parts=dict.fromkeys(PARTS))
        return run(settings, options.parts)
    del sys.argv[1]
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare")
    parser.add_argument("before", metavar="A", help="a file of results, or a commit")
    parser.add_argument("after", metavar="B", help="a file of results, or a commit")
    text = "how many times slower is worth a word (default: 1.5)"
    parser.add_argument("--threshold", type=float, default=1.5, help=text)
    parser.add_argument("--out", type=Path, default=Path("benchmark-results"))
    return compare(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
