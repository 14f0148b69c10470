"""Figures of a panel as SVG (light and dark) and PNG. matplotlib is imported under this folder only."""
