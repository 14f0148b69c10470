"""The page: a view made from the results, a template, and a folder that appears whole or not at all."""
