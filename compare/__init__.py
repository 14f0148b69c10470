"""Comparisons that only the makers of Lockstep run: with other libraries, and of measurements with predictions, alternating on one machine."""
