"""`python -m bench [name ...] [--json] [--large] [--repetitions N]`: measure, print, leave."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from importlib.metadata import version

import msgspec
from rich.console import Console
from rich.table import Table

from bench import drivers, lifecycle, postgres, seal, stores, worker
from bench.measure import Bench, Ratio, Result, compare, run

BENCHES: dict[str, Callable[[], Bench]] = {
    "drivers": drivers.bench,
    "lifecycle": lifecycle.bench,
    "postgres": postgres.bench,
    "seal": seal.bench,
    "snapshot": postgres.bench_old,
    "stores": stores.bench,
}
LARGE = {"postgres": postgres.bench_large, "stores": stores.bench_large}
"""What `--large` builds instead."""
WORKER = "worker"
"""Whole runs of real fleets, so it is asked for by name only, and told in tables of its own."""
WORKER_REPETITIONS = 3
REPETITIONS = 51
_WIDTH = 110
_COMPARED = ("asyncpg", "msgspec", "psycopg", "python-statemachine", "transitions")


class Report(msgspec.Struct, frozen=True):
    """One run of one benchmark, with what is needed to compare it with another run."""

    bench: str
    python: str
    machine: str
    packages: dict[str, str]
    repetitions: int
    results: list[Result]
    ratios: list[Ratio]


def main() -> None:
    """Run the benchmarks that were named, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    known = (*BENCHES, WORKER)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of: {', '.join(known)}")
    parser.add_argument("--json", action="store_true", help="print one JSON document per line")
    parser.add_argument("--repetitions", type=int, help="slices per case (51; runs of a worker 3)")
    parser.add_argument("--large", action="store_true", help="also what takes minutes to build")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(known):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in asked.names or BENCHES:
        if name == WORKER:
            worker.run(asked.repetitions or WORKER_REPETITIONS, is_large=asked.large)
            continue
        report = measure(name, max(2, asked.repetitions or REPETITIONS), is_large=asked.large)
        if asked.json:
            print(msgspec.json.encode(report).decode())
        else:
            show(report)


def measure(name: str, repetitions: int, *, is_large: bool = False) -> Report:
    """Build the benchmark, then time it; building is not part of what is measured."""
    built = (LARGE.get(name, BENCHES[name]) if is_large else BENCHES[name])()
    results = run(built.cases, repetitions)
    return Report(
        bench=name,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        machine=f"{platform.system()} {platform.machine()}",
        packages={package: version(package) for package in _COMPARED},
        repetitions=repetitions,
        results=results,
        ratios=compare(built.goals, results),
    )


def show(report: Report) -> None:
    """The same as tables for people."""
    # Piped into a file there is no terminal to ask; the tables need this much.
    console = Console(width=max(Console().width, _WIDTH))
    packages = ", ".join(f"{name} {number}" for name, number in report.packages.items())
    console.print(f"{report.bench}: {report.python}, {report.machine}; {packages}")
    console.print(_times(report))
    if report.ratios:
        console.print(_ratios(report))


def _times(report: Report) -> Table:
    table = Table(title=f"microseconds per operation, {report.repetitions} repetitions")
    table.add_column("case")
    for column in ("median", "middle half", "per second"):
        table.add_column(column, justify="right")
    for one in report.results:
        spread = f"{one.low_us:.3f} - {one.high_us:.3f}"
        table.add_row(one.name, f"{one.median_us:.3f}", spread, f"{one.per_second:,.0f}")
    return table


def _ratios(report: Report) -> Table:
    table = Table(title="how many times as fast")
    for column in ("ours", "theirs"):
        table.add_column(column)
    for column in ("times", "goal", ""):
        table.add_column(column, justify="right")
    for one in report.ratios:
        goal = f">= {one.at_least:g}"
        table.add_row(one.ours, one.theirs, f"{one.times:.1f}", goal, one.verdict)
    return table


if __name__ == "__main__":
    main()
