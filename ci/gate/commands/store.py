"""gate.py store DIR RECORDS...: adds files of measurements to a baseline store, in a folder per machine."""
import argparse
from pathlib import Path

from gate import store
from gate.inputs.files import files_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, metavar="DIR", help="folder of the store; it is created if it does not exist")
    parser.add_argument("files", nargs="+", metavar="RECORDS", help="files, folders or globs")


def run(arguments: argparse.Namespace) -> int:
    files = list(dict.fromkeys(path for text in arguments.files for path in files_of(text, "RECORDS")))
    for path in dict.fromkeys(store.add(arguments.store, files)):
        print(path)
    return 0
