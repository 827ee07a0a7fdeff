"""What others report, to stand beside our rows: ACC, NMI and ARI as printed by the named source."""

PEERS = {
    "cifar10": [
        ("DCCM (by the paper)", 0.623, 0.496, 0.408),
        ("GATCluster (by the paper)", 0.610, 0.475, 0.402),
        ("PICA (by the paper)", 0.696, 0.591, 0.512),
        ("BYOL + k-means, the paper's", 0.638, 0.429, 0.440),
        ("ConCURL, the paper's", 0.785, 0.667, 0.614),
        ("the authors' follow-up, ConCURL_NCE (trained on 50,000, checkpoint chosen by labels)", 0.846, 0.762, 0.715),
        ("SCAN (three stages, train -> test, its best model)", 0.883, 0.797, 0.772),
        ("BYOL + k-means by ProPos' recipe (1000 epochs)", 0.894, 0.817, 0.790),
        ("ProPos (1000 epochs, 4 GPUs)", 0.943, 0.886, 0.884),
    ],
}

# The paper's ablations (its tables 4 and 5: STL-10's 13,000 images, 1000 epochs), by the names of ablations.py.
PAPER_ABLATIONS = {
    "byol": ("BYOL + k-means", 0.594, 0.506, 0.375),
    "soft": ("soft clustering", 0.565, 0.533, 0.401),
    "byol-soft": ("BYOL + soft", 0.651, 0.572, 0.460),
    "concurl": ("ConCURL: 100 projections to 64 dimensions", 0.752, 0.645, 0.580),
    "projection-M10-dim64": ("10 projections to 64", 0.625, 0.580, 0.449),
    "projection-M30-dim64": ("30 projections to 64", 0.733, 0.615, 0.547),
    "projection-M50-dim64": ("50 projections to 64", 0.610, 0.569, 0.432),
    "projection-M100-dim32": ("100 projections to 32", 0.731, 0.619, 0.545),
    "projection-M100-dim128": ("100 projections to 128", 0.646, 0.556, 0.461),
    "projection-M100-dim256": ("100 projections to 256", 0.705, 0.586, 0.515),
    "diagonal-M10": ("10 diagonals", 0.731, 0.631, 0.551),
    "diagonal-M30": ("30 diagonals", 0.608, 0.569, 0.440),
    "diagonal-M50": ("50 diagonals", 0.589, 0.543, 0.412),
    "diagonal-M100": ("100 diagonals", 0.511, 0.476, 0.316),
}
