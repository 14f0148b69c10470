#!/usr/bin/env python3
"""Prints the paths of all C++ and CUDA sources and headers, from the root, one per line."""

from pathlib import Path

from source_tree import HEADERS, SOURCES, SourceTree

print("\n".join(SourceTree(Path(__file__).resolve().parent.parent).files(*HEADERS, *SOURCES)))
