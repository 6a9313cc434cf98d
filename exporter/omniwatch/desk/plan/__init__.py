"""Compute what a checkpoint needs on a device: weights, KV cache, streams, and the flags that follow."""
