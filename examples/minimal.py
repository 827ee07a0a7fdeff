"""Shows the whole method as one loop of plain PyTorch, in the paper's order and letters: to read, or to take lines from.

    python examples/minimal.py             # 1,797 handwritten digits; 40 seconds on one core
    python examples/minimal.py 800 3       # so many steps, another seed

ACC with seeds 0 to 3: 0.962, 0.960, 0.960, 0.936 (k-means on the pixels: 0.79), by settings that were tried on these digits.
The functions imported from concurl work on tensors alone, and importing them so is supported. To have L2 and L3 in a loop of
your own (MoCo, SimSiam), give your network a cluster head and prototypes, and your loss the lines from z1, z2 to eq. 7.
"""

import copy
import sys

import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample, normalize

from concurl.clustering.metrics import accuracy
from concurl.objective.ensemble import draw_transforms, ensemble_log_assignments, log_assignments
from concurl.objective.kmeans import spherical_kmeans
from concurl.objective.losses import byol_loss, swapped_loss
from concurl.objective.sinkhorn import sinkhorn

K, B, M, DIM = 10, 128, 20, 64  # clusters, images in a batch, members of the ensemble, dimension of v, w, z and C
TAU, EPSILON, TAU_B = 0.1, 0.05, 0.98
ALPHA = BETA = GAMMA = 1.0


def conv(d_in: int, d_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(d_in, d_out, 3, stride, padding=1), nn.BatchNorm2d(d_out), nn.ReLU())


def mlp(d_in: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(d_in, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, DIM))


def view(x: Tensor) -> Tensor:
    """Each image (B, 1, 8, 8) a little turned, scaled, sheared and moved at random, and then brighter or darker."""
    affine = torch.eye(2, 3) + torch.empty(len(x), 2, 3).uniform_(-0.25, 0.25)
    moved = grid_sample(x, affine_grid(affine, list(x.shape), align_corners=False), align_corners=False)
    return moved * torch.empty(len(x), 1, 1, 1).uniform_(0.6, 1.4)


def codes(z: Tensor, C: Tensor, iterations: int = 3) -> Tensor:
    """Each cluster gets an equal share of z, which should thus be many more than there are clusters."""
    return sinkhorn(normalize(z, dim=1) @ normalize(C, dim=1).T, EPSILON, iterations)[0]


def main(steps: int = 800, seed: int = 0) -> None:
    torch.manual_seed(seed)
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)

    layers = conv(1, 32, 1), conv(32, 32, 1), conv(32, 64, 2), conv(64, 128, 1)
    f = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    projector, predictor, head = mlp(128), mlp(DIM), mlp(128)  # the paper's g_theta, h_theta and g
    online = nn.Sequential(f, projector)
    target = copy.deepcopy(online).requires_grad_(False)
    C = nn.Parameter(torch.randn(K, DIM))  # the prototypes
    A = draw_transforms("projection", M, DIM, 16, seed)  # the ensemble, drawn once
    # A predictor that learns ten times faster than the rest gives BYOL better features.
    groups = [[*online.parameters(), *head.parameters(), C], [*predictor.parameters()]]
    optimizer = torch.optim.AdamW([{"params": group} for group in groups], weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [2e-3, 2e-2], steps, pct_start=0.1)

    start = steps * 6 // 10  # until then BYOL alone: clusters formed before the features are good stay poor
    l2 = l3 = torch.zeros(())
    for step in range(steps):
        if step == start:  # the head begins as BYOL's projector, the prototypes as k-means of its outputs
            head.load_state_dict(projector.state_dict())
            with torch.no_grad():
                C.copy_(spherical_kmeans(head(f(images)), K, seed=seed)[0])

        x = images[torch.randperm(len(images))[:B]]
        x1, x2 = view(x), view(x)
        y1, y2 = f(x1), f(x2)
        w1, w2 = predictor(projector(y1)), predictor(projector(y2))
        v1, v2 = target(x1), target(x2)
        l1 = byol_loss(w1, w2, v1, v2)  # eqs. 1 and 2
        if step >= start:
            z1, z2 = head(y1), head(y2)
            log_p1, log_p2 = log_assignments(z1, C, TAU), log_assignments(z2, C, TAU)  # eq. 3
            q1, q2 = codes(z1, C), codes(z2, C)  # eq. 4
            l2 = swapped_loss(log_p1, log_p2, q1, q2)  # eq. 5
            log_pm1, log_pm2 = (ensemble_log_assignments(z, C, A, TAU) for z in (z1, z2))  # eq. 3 for A z, A C
            l3 = swapped_loss(log_pm1, log_pm2, q1, q2)  # eq. 6
        loss = ALPHA * l1 + BETA * l2 + GAMMA * l3  # eq. 7

        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for xi, theta in zip(target.parameters(), online.parameters(), strict=True):
                xi.lerp_(theta, 1 - TAU_B)  # xi <- tau_B xi + (1 - tau_B) theta
        if (step + 1) % max(1, steps // 10) == 0:
            print(f"step {step + 1}: L1 {l1:.3f}, L2 {l2:.3f}, L3 {l3:.3f}", flush=True)

    with torch.no_grad():
        labels = codes(head.eval()(f.eval()(images)), C, 100).argmax(1)  # of all images at once
    pixels = KMeans(K, n_init=10, random_state=seed).fit_predict(digits.data)
    found, usual = accuracy(digits.target, labels), accuracy(digits.target, pixels)
    print(f"sizes of the clusters: {labels.bincount(minlength=K).tolist()}")
    print(f"clusters: ACC {found:.3f} (k-means on the pixels: {usual:.3f})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
