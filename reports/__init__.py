"""Reads record files (docs/record_format.md) and writes a page that says which algorithm wins, at which size, and why.

load -> check -> analysis -> plots, html. Everything before plots and html is pure: files in, dataclasses out.
"""
