"""Reads record files (docs/record_format.md), writes pages: which algorithm, kernel, schedule or layout is fastest, and why.

load -> check -> analysis -> plots, html. Everything before plots and html is pure: files in, dataclasses out.

analysis: pure functions from Records to the contents of the page: panels, crossovers, fits, predictions, sentences. Its folders:
    gate: verdicts of the regression gate (docs/gate.md): their order, their words, and their page;
    roofline: kernels against the machine's measured ceilings: groups that share a plot, each kernel's distance from its limit;
    steps: training steps: groups of schedules that are compared, their figures and their sentences;
    training: runs of a trainer, and what their layers and their data parallelism cost.
claims: compares claims of surveys with records: docs/claims.md has the format of claims.json and the rule of the verdict.
plots: figures of a panel as SVG, light and dark. matplotlib is imported under this folder only.
html: the page: a view made from the results, a template, and a folder that is written completely or not at all.
"""

VERSION = "0.1.0"  # of the project in CMakeLists.txt; pyproject.toml reads it here
