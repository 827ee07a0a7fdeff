"""What others report, to stand beside our rows: ACC, NMI and ARI as printed by the named source."""

PEERS = {
    "cifar10": [
        ("DCCM (by the paper)", 0.623, 0.496, 0.408),
        ("GATCluster (by the paper)", 0.610, 0.475, 0.402),
        ("PICA (by the paper)", 0.696, 0.591, 0.512),
        ("BYOL + k-means, the paper's", 0.638, 0.429, 0.440),
        ("ConCURL, the paper's", 0.785, 0.667, 0.614),
        ("the follow-up's (checkpoint chosen by labels)", 0.846, 0.762, 0.715),
        ("SCAN (three stages, train -> test)", 0.883, 0.797, 0.772),
        ("BYOL + k-means by ProPos' recipe (1000 epochs)", 0.894, 0.817, 0.790),
        ("ProPos (1000 epochs, 4 GPUs)", 0.943, 0.886, 0.884),
    ],
}
