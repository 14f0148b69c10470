"""Kernels against the machine's measured ceilings: groups that share a plot, each kernel's distance from its limit, sentences."""
