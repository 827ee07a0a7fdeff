"""The losses L1, L2, L3 and what they are made of: Sinkhorn codes, the ensemble, k-means."""
