"""``fedqcl report``: tables, figures and a page of runs."""

from __future__ import annotations

from pathlib import Path

from fedqcl.cli.words import Parser


def report(words: list[str]) -> int:
    """Run the command.

    Args:
        words: what follows ``fedqcl report``.

    Returns:
        Exit status: 0.

    Raises:
        InputError: there are no finished runs, or the report cannot be written.
    """
    from fedqcl.report.report import make_report

    parser = Parser(prog="fedqcl report", description="Make tables, figures and a page of finished runs.")
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="runs' folders, or folders that hold some, as runs")
    parser.add_argument("--out", default="report", help="folder for index.html, tables and figures")
    options = parser.parse_args(words)
    out = Path(options.out)
    earlier = (out / "index.html").exists()
    page = make_report(options.runs, out)
    print(f"{page}\n{out / 'tables'}\n{out / 'figures'}")
    if earlier:
        print("in the place of an earlier report; --out FOLDER puts the next one elsewhere")
    return 0
