"""Reads files of measurements of any program as observations: files.read()."""
