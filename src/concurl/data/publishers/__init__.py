"""The benchmarks, as their publishers ship them."""
