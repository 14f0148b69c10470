"""Compares claims of surveys with records: docs/claims.md has the format of claims.json and the rule of the verdict."""
