"""Training steps: which schedules are compared, what is drawn of them, and what is said."""
