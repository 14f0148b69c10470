"""Verdicts of the regression gate (docs/gate.md): their order, their words, and their page."""
