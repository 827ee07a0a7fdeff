"""The words of docs/results.md, by table; results.py puts the figures between them."""

from __future__ import annotations

TITLES = {
    "cifar10": "CIFAR-10 (all 60,000 images, train+test, last checkpoint)",
    "cifar10-variants": "CIFAR-10: earlier forms of the recipe",
    "stl10": "STL-10, 4,001 of its training images (not comparable with the paper's 13,000)",
    "imagenette": "Imagenette at 128 px (9,469 training images; a stand-in for ImageNet-10, not comparable with it)",
    "small-sets": "Small sets on a CPU, by the defaults",
    "digits": "Digits (scikit-learn's 1,797, 8x8 enlarged to 12x12)",
}
NOTES = {
    "cifar10": """\
The others' figures are as they report them: the paper's and those *by the paper* in its table 3, ProPos and BYOL by its recipe in
table 2 of [arXiv 2111.11821](https://arxiv.org/abs/2111.11821), SCAN in the README of its code ([arXiv
2005.12320](https://arxiv.org/abs/2005.12320)), the follow-up in the README of its own ([arXiv
2105.01289](https://arxiv.org/abs/2105.01289)). Not all are of the 60,000 images: the follow-up's code trains on the 50,000
training images and scores them and the test images apart (its README does not say which score it gives), SCAN trains on the
former and is scored on the latter. Encoders: ResNet-34 in the paper, in PICA and in our runs of the paper's recipe; ResNet-18 in
the follow-up, in ProPos and in all our other runs.

**`modern` was tuned on this set.** A run sees no label, but the recipe's settings (smaller views, balanced prototypes, the
learning rate of the second stage) come from trials whose ACC on CIFAR-10 we looked at ([log](log.md)). So these scores are no
estimate for another set: see [other sets](#sets-that-played-no-part-in-choosing-the-recipe).

**modern-1000** is the recipe as it stands: one command. ACC of seeds 0 and 1: {modern}. Its first 850 epochs are BYOL alone and
take 17.6 minutes. At that point k-means on 50,000 of the images reaches 0.870 / 0.800 / 0.746 (ACC of seed 1: 0.865), and
balanced k-means, from which the prototypes start, an ACC of 0.904 (seed 1: 0.911). So the last 150 epochs add 5 points to
k-means, and 1 to 2 to balanced k-means. (The commit of seed 0 is older: its queue was not yet filled in random order, and the
ensemble's products were not yet in bfloat16.)

**The consensus loss.** Three more runs start from the features of seed 0. In **modern-1000-soft** the consensus loss is off and
soft clustering takes over its weight (beta 1 instead of beta = gamma = 0.5). It ends 1.8 points lower, where its clusters began.
This is one seed, from a copy of the features in half precision and without the optimiser's momenta; it shared the card, so its
minutes cannot be compared.

**The four losses in about the same time.** Each row has 300 epochs, with the same encoder, views and optimiser; only ConCURL has
more than one seed:

{four_losses}

Here **ConCURL is not ahead of BYOL + k-means**; read by k-means on v_xi, as BYOL is, it has 0.830, 0.834 and 0.826. A likely
reason is the time that each part gets: ConCURL begins to cluster after 255 epochs, where k-means reaches 0.816, 0.811 and 0.816,
and adds 1.3 to 2.3 points to that; BYOL gains 1.9 in the same 45 epochs. What our BYOL alone reaches in 1000 epochs is not known
(ProPos reports 0.894 for theirs).

**The paper's own recipe.** The paper does not name the network's first layers (stem). With those for small images, as in the
authors' later code, **paper-cifar10-385** ran as many of the 500 epochs as fit into 25 minutes and ended at 0.627; with those for
large images, paper-cifar10-large-stem ran all 500 and ended at 0.426. By the monitor the first gained a point in its last 100
epochs (the learning rate is constant), the second a point from epoch 275 on. So **the paper's 0.785 has not been reproduced with
the paper's own recipe**. The paper gives its settings only in part ([what it leaves
open](method.md#what-the-paper-leaves-open-and-what-we-took)). The arithmetic was checked: a training step written again from the
paper, in float64, agrees with ours ([log](log.md)). Both runs have torchvision's colours; the recipe has since changed to
Kornia's formulas of 2021, as in the paper, which change colours twice as much, and has not been run again.
""",
    "cifar10-variants": """\
Runs on the way to `modern`; the [log](log.md) says why each was made. Those named views24 have views of 24 px, as the recipe has
now, but their prototypes start from plain k-means, and the learning rate of their second stage is three times as high, which
spoils features trained for 850 epochs. Where their clustering begins, k-means reaches 0.838 / 0.735 / 0.700 after 300 epochs (6.8
minutes) and 0.862 / 0.796 / 0.735 after 850 epochs (18 minutes). The others have views of 32 px, which are slower and no better.

The commands use today's options. byol-soft-355 and concurl-355 were continued from byol-kmeans-300 by a script; their commands
train from scratch.
""",
    "stl10": """\
The images are training images 0 to 4,000, as JPEG files of quality 95. All rows are made by `python benchmarks/ablations.py stl10
--table stl10 --date YYYY-MM-DD --set epochs=200 colours=torchvision`. They have a third of the paper's images and a fifth of its
epochs: compare them with each other, not with the paper's. Three trainings shared one card (MPS), so a run alone is faster. The
recipe has since changed to Kornia's colours. Do the paper's trends hold?

- *The consensus loss helps*: over BYOL + soft clustering, probably. Here it adds 3 points, with overlapping seeds; in an earlier
  try of the same eight runs ([log](log.md)) it added 7. Over both tries, four runs each, ConCURL has 0.434 (0.415 to 0.461), soft
  clustering 0.423 (0.380 to 0.450), BYOL + soft 0.383 (0.365 to 0.422) and BYOL 0.348 (0.302 to 0.378). We do not see it beat
  soft clustering alone, as it does in the paper.
- *100 projections and 64 dimensions are best*: not seen. All settings end between 0.405 and 0.465, and a single one varies nearly
  as much between seeds and tries. Only 256 dimensions, the lowest, has a reason to differ: a projection of 256 dimensions to 256
  with orthonormal rows is a rotation, which changes no cosine, so L3 is L2.
- *More diagonals are worse*: not seen; 0.420 to 0.441.
- *The members come to agree*: yes, with the consensus loss. Their pairwise NMI rises from 0.69 after 10 epochs to 0.91 (seed 0),
  and its deviation falls from 0.05 to 0.01. Without it they begin between 0.57 and 0.61 and end between 0.61 and 0.67.
""",
    "imagenette": """\
`modern` with all its defaults on a folder of photographs (Imagenette v2's training split, resized to 128 x 128, WebP of quality
80), against BYOL alone for as many epochs, with the same encoder, views and optimiser. Both ran at the same time on one card
(MPS), at 12,300 images/s each; a step alone makes 21,850. One seed each.

| | ACC | NMI | ARI |
|---|---|---|---|
| BYOL + k-means on v_xi, 1000 epochs | 0.854 | 0.741 | 0.712 |
| the same, k-means on w_theta, its best readout | 0.877 | 0.771 | 0.749 |
| **ConCURL: `modern`, 1000 epochs** | **0.883** | **0.768** | **0.769** |

ConCURL is ahead by 2.9 points of ACC where both are read as on CIFAR-10, and by 0.6 where BYOL's readout is chosen by the labels
(there BYOL has the higher NMI); with one seed each, 0.6 is no difference. Of the images with a confidence of 0.95 or more (88%)
92.7% are right, of those below 0.8 (3%) 34.9%. The set is not quite unseen: five hundred of these photographs, on a CPU, had a
part in choosing defaults for small sets (learning rate by the batch, epochs), and a first, far too short run on all of them
(0.292) led to the smaller batches, which were then chosen on digits ([log](log.md)). The labels are the folders' names (`concurl
evaluate RUN --labels folders`).
""",
    "small-sets": """\
What `modern` reaches on a CPU with all its defaults (MNIST and Fashion-MNIST: 50 epochs instead of 100), on one core beside other
work, so the minutes are upper bounds. The sets' names stand for folders of pictures drawn at random; the draws are not recorded,
so another draw will score somewhat differently. The STL-10 images are those of the section above.

| ACC / NMI / ARI, mean of three seeds | k-means on the pixels | before (one run) | the defaults | deviation | ACC of v_xi |
|---|---|---|---|---|---|
| MNIST, 3,000 | 0.538 / 0.489 / 0.366 | 0.616 / 0.532 / 0.446 | **0.768 / 0.714 / 0.641** | 0.009 | 0.781 |
| Fashion-MNIST, 3,000 | 0.496 / 0.512 / 0.350 | 0.447 / 0.357 / 0.272 (a) | **0.611 / 0.550 / 0.447** | 0.006 | 0.605 |
| photographs (Imagenette), 500 | 0.234 / 0.122 / 0.044 | 0.238 / 0.128 / 0.054 | **0.279 / 0.170 / 0.076** | 0.013 | 0.287 |
| STL-10, 4,001 | 0.218 / 0.126 / 0.060 | | **0.300 / 0.240 / 0.128** | 0.016 | 0.310 |

*Deviation* is that of ACC by codes; *ACC of v_xi* is by k-means on v_xi of the same runs. (a) Other images of the set, and 60
epochs.

The first three sets had a part in choosing these defaults (learning rate, encoder, epochs, brightness: [log](log.md));
**STL-10 had none**. **Patience pays**: with five times the epochs (stl4001-370, one seed; its minutes are those of a run
beside other work, stopped for a while) its ACC is 0.403 instead of 0.300, that of k-means on v_xi 0.382 instead of 0.310,
with clusters of equal size 0.392.

Rows named *before* have the previous defaults; those named *steady-light* leave brightness and contrast unchanged, which costs
Fashion-MNIST 18 points and gains MNIST 4 (one run each).

**Do the cluster losses help here?** Hardly. In the same runs k-means on v_xi (last column) is as good as the codes. Rows named
*byol* train BYOL alone to the end; over two seeds each, k-means on v_xi then has 0.793 and 0.768 on MNIST, where ConCURL has
0.767, 0.778 and 0.760; 0.564 and 0.591 on Fashion-MNIST, where it has 0.616, 0.605 and 0.611; and 0.293 and 0.296 on STL-10,
where it has 0.318, 0.290 and 0.291. So the losses bring 3 points on Fashion-MNIST, and on MNIST and STL-10 nothing that these
seeds could show. On the photographs BYOL alone has not been run.
""",
    "digits": """\
The recipe was chosen by labelled scores on these same digits and most of these seeds (the [log](log.md) lists every variant
tried). So the rows show what the demo does and what each loss is worth there, not what the method would score on an unseen set.
k-means on the pixels has 0.800.

{four_losses}

*Soft clustering* and *BYOL* are trainings of their own, with as many epochs; *BYOL + soft* shares the first 90 of its 120
epochs with ConCURL (`fit --from`), and its `--min-sureness 0.9`: in both the ensemble decides which images train the
networks, so the row leaves out L3, not the ensemble. ConCURL is ahead of BYOL + k-means with each of the six seeds: by 0.1 to
3.1 points, and by 15 with the one where k-means merges two digits. Told that the classes are of equal size, as the codes are,
k-means merges none, and ConCURL is ahead of it by 0.2 to 3.1 points, 1.6 in the mean. It is ahead of BYOL + soft clustering
with each, too: the consensus loss is worth 0.1 to 0.6 points. The minutes are those of two cores, for some rows beside other
work.
""",
}
FOUR_LOSSES = {  # of each table, by the names of the runs without their seeds
    "cifar10": {
        "soft-300": "soft clustering (soft-300)",
        "byol-300": "BYOL + k-means on v_xi (byol-300)",
        "byol-soft-300": "BYOL + soft clustering (byol-soft-300; other work shared the card)",
        "concurl-300": "ConCURL (concurl-300)",
    },
    "digits": {
        "digits-soft": "soft clustering alone (one seed)",
        "digits-byol": "BYOL + k-means on v_xi",
        "digits-byol-soft": "BYOL + soft clustering",
        "digits": "ConCURL: the demo",
    },
}
HEAD = """\
# Results

What was measured, beside what others report. **How**: a run trains on all images of its set and is scored on the same images,
from its last checkpoint. Training never sees a label. ACC is by Hungarian matching, NMI divides by the geometric mean. *codes*
are the method's own labels; *p*, *soft vote* and *k-means on v_xi* read the same network in other ways (BYOL alone has only the
last). A row is one run unless it gives a number of seeds; deviations are those of a sample (n - 1).

Each run's command is listed in its section. `python benchmarks/reproduce.py TABLE ROW` runs it again and compares; machines round
differently, so expect ACC to differ by as much as between seeds. The tables are results/*.csv, each run's metrics are in
results/metrics, and `python benchmarks/results.py` and `figures.py` make this page and its figures from them.
"""
ACC_MINUTES = """\
![ACC against minutes](figures/acc-minutes.svg)

The lines show ACC on the monitor's 4,096 images, from where clustering begins (before that there are no clusters to score); the
dots are the final ACC on all images. If a run continued from another's BYOL stage, that stage's minutes count, too. The
horizontal levels are others' final scores, whatever time they took.{silent}
"""
TIME_TO_PAPER = """\
**Time to the paper's {level}**: minutes of training, compilation included, until the monitor (4,096 images, every fifth epoch
once clustering has begun) first saw a higher ACC, which was its first look: {found}. Starting the process and reading the images
takes another 15 s or so.
"""
UNEQUAL = """\
## Unequal classes

Digits with a long tail (`python benchmarks/unequal.py --folder DIR`): ACC by codes for `--balance` from 1 (equal shares, as in
the paper) to 0 (no balancing); mean and deviation over seeds, which also decide which digits are rare. Each set is trained once,
with the `digits` recipe of 2026-11-16 (today's with `--prototype-init kmeans --min-sureness 0`); the other values of `--balance`
continue from that run (`fit --from`).
"""
TSNE = """\
![t-SNE of the embeddings](figures/tsne-{name}.svg)

Embeddings of a trained model; each point is a picture. On the left, colours are true classes, which training did not know; on the
right, clusters, each in the colour of its matching class. Distances between groups mean little.
"""
SWEEP = """\
![Diversity for several dimensions of the projection](figures/diversity-{name}.svg)

As in the paper's figure: mean and deviation of the pairwise NMI of the M = 100 members' partitions, for several dimensions of the
random projection (z has 256).
"""
DIVERSITY = """\
## Diversity of the ensemble

![Diversity over epochs](figures/diversity.svg)

Mean and deviation of the pairwise NMI of the members' partitions, by epochs since clustering began, from the runs' own metrics.
It rises in each of these runs, as in the paper's figure; with the consensus loss it is higher at the first look, after five
epochs, and at the end. In the paper's recipe all losses act from the first step: there it begins at 0.63, after one epoch, and
ends at 0.98. In the other runs BYOL comes first, so the members start from trained features.
"""
UNSEEN = """\
## Sets that played no part in choosing the recipe

There is one so far: 4,001 images of STL-10 on a CPU, with all defaults, in three runs (small sets, above). `modern` reaches an
ACC of 0.300 there, BYOL alone, read by k-means, 0.295 (two runs), k-means on the pixels 0.218. Imagenette's 9,469 photographs on
a GPU come close to a second (their section says what part they had). CIFAR-100-20, ImageNet-10, ImageNet-Dogs and the whole of
STL-10 have recipes here but no results. On ImageNet-10 and ImageNet-Dogs the paper itself reports BYOL + k-means ahead of ConCURL
(ACC 0.939 and 0.931; 0.542 and 0.447).
"""
RANKING = """\
## Choosing a run without labels

How well do figures that need no labels, taken at the end of a run, rank runs by ACC (`python benchmarks/ranking.py`)? Below is
Spearman's correlation over all recorded runs of one recipe with all three losses; signs are turned so that more should be better.
The digits' runs differ in epochs, views and seeds, those of CIFAR-10 in epochs, views and start of the clusters, those of STL-10
in the ensemble (one in the seed). The p values assume independent runs, but some of CIFAR-10's share their features.
"""
RANKED = """
Among runs on one set, with one K and one preset, take the one with the lowest losses. On digits and on CIFAR-10 this tells runs
that are too short or badly set up from good ones. Across presets it misleads, because weaker views are easier to agree on
([log](log.md)). Among runs that differ little, as on STL-10, it says nothing.
"""
