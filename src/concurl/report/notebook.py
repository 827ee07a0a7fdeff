"""A fitted estimator as a notebook shows it: the clusters in a few lines of html, with their most typical pictures."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from concurl.amounts import counted
from concurl.report.palette import pairs
from concurl.report.thumbnails import small

MAX_ROWS = 20  # clusters, the largest first: a notebook has no room for a thousand
_PICTURES = 8  # in a row
_SIDE = 40  # pixels


def typical_pictures(
    images: NDArray[np.uint8], labels: NDArray[np.int64], embeddings: NDArray[np.float32]
) -> dict[int, list[str]]:
    """For each of the largest clusters, data URIs of the images nearest to its middle: a few kB in all."""
    found = {}
    for cluster in _largest(labels):
        members = np.flatnonzero(labels == cluster)
        z = embeddings[members]
        nearest = members[np.argsort(-(z @ z.mean(axis=0)), kind="stable")[:_PICTURES]]
        found[cluster] = [small(images[row], _SIDE) for row in np.sort(nearest)]
    return found


def summary(
    labels: NDArray[np.int64],
    agreement: NDArray[np.float32],
    k: int,
    skipped: int,
    pictures: dict[int, list[str]],
    trouble: str = "",
) -> Markup:
    """The clusters as a table: how many images, how far the ensemble agrees, what they look like."""
    sizes, colours = np.bincount(labels, minlength=k), pairs(k)
    shown = _largest(labels)
    rows = [
        Markup(
            '<tr><th scope="row" style="text-align:left;font-weight:400;white-space:nowrap"><span style="display:inline-block;'
            'width:.7em;height:.7em;border-radius:50%;margin-right:.5em;background:{}"></span>Cluster {}</th>'
            '<td style="text-align:right">{}</td><td style="text-align:right">{}</td><td style="text-align:left">{}</td></tr>'
        ).format(
            colours[cluster][0],
            cluster,
            f"{sizes[cluster]:,}",
            f"{agreement[labels == cluster].mean():.2f}",
            Markup("").join(
                Markup('<img src="{}" alt="" width="{}" height="{}" style="display:inline;margin:0 2px 0 0">').format(
                    uri, _SIDE, _SIDE
                )
                for uri in pictures.get(cluster, ())
            ),
        )
        for cluster in shown
    ]
    words = f"{counted(len(labels), 'image')} in {counted(k, 'cluster')}; "
    words += f"the ensemble's mean agreement is {agreement.mean():.2f}."
    words += f" {counted(skipped, 'file')} left out: see skipped_." if skipped else ""
    rest = k - len(shown)
    words += f" {counted(rest, 'further cluster')} {'is' if rest == 1 else 'are'} smaller, or empty." if rest else ""
    warned = Markup("<p><strong>The run is not healthy: do not rely on these clusters yet ({}).</strong></p>").format(
        trouble
    )
    return Markup(
        '<div class="concurl-summary">{}<p style="margin:.8em 0 .4em">{}</p><table><thead><tr><th style="text-align:left">'
        'Largest first</th><th style="text-align:right">Images</th><th style="text-align:right">Agreement</th>'
        '<th style="text-align:left">{}</th></tr></thead><tbody>{}</tbody></table></div>'
    ).format(warned if trouble else "", words, "Most typical" if pictures else "", Markup("").join(rows))


def _largest(labels: NDArray[np.int64]) -> list[int]:
    sizes = np.bincount(labels)
    return [int(c) for c in np.argsort(-sizes, kind="stable")[:MAX_ROWS] if sizes[c]]
