"""The one exception for bad input: its text is the line that the user sees."""


class ReportError(Exception):
    pass
