"""Reads record files (docs/record_format.md), writes pages: which algorithm, kernel, schedule or layout is fastest, and why.

load -> check -> analysis -> plots, html. Everything before plots and html is pure: files in, dataclasses out.
"""
