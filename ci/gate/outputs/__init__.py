"""A report as people and programs read it."""
import argparse
from pathlib import Path

from ..model import Report
from .terminal import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="show every case, not only those that changed or are undecided")


def write_outputs(report: Report, arguments: argparse.Namespace) -> None:
    print(table(report, show_all=arguments.all))
