"""Benchmarks: sessions of secure aggregation, its primitives, Flower's SecAgg+; noise; DP-SGD.

Each measurement runs in a process of its own, on one core, so that its peak memory is its own;
ratios are of figures that were measured in the same run.
"""

from zerosum.simulations.bench.process import BenchError, measure

__all__ = ["BenchError", "measure"]
