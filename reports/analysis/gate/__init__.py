"""Verdicts of the regression gate (docs/gate.md): their order, their words, what a page says of them."""
