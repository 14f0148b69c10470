"""Reads record files (docs/record_format.md), writes pages: which algorithm, kernel, schedule or layout is fastest, and why.

load -> check -> analysis -> plots, html. Everything before plots and html is pure: files in, dataclasses out.
"""

VERSION = "0.1.0"  # of the project in CMakeLists.txt; pyproject.toml reads it here
