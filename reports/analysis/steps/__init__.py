"""Training steps: groups of schedules that are compared, their figures and their sentences."""
