"""Kernels against the machine's measured ceilings: what may share a plot, how far each is from its limit, sentences."""
