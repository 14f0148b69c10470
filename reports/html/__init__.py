"""The page: a view made from the results, a template, and a folder that is written completely or not at all."""
