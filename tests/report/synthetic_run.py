"""A run's folder made of coloured shapes, the same each time: what fit would have left, without training."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concurl.config import Config
from concurl.data.imageset import ImageSet, Opened
from concurl.report import write_report
from concurl.runs.provenance import Provenance

COLUMNS = ("path", "cluster", "name", "confidence", "margin", "agreement", "outlier", "status")


@dataclass(frozen=True)
class Run:
    folder: Path
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def rows(self) -> list[dict[str, str]]:
        """assignments.csv as any reader would see it."""
        path = self.folder / "assignments.csv"
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            return list(csv.DictReader(file))


def write(run: Run, labels: Any = None, classes: Sequence[str] | None = None, **how: Any) -> Path:
    """The run's page, from the images that it has in memory."""
    images = ImageSet(run.images, [str(i) for i in range(len(run.images))])
    return write_report(run.folder, Opened(images, labels, classes), **how)


def row_of(run: Run, path: str) -> tuple[int, dict[str, str]]:
    return next((i, row) for i, row in enumerate(run.rows()) if row["path"] == path)


def shapes(n: int, k: int, side: int = 40) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """n pictures of k kinds; each kind has a shape and a colour of its own, each picture a place and a shade."""
    rng = np.random.default_rng(7)
    kind = np.arange(n) % k
    y, x = np.mgrid[:side, :side]
    pictures = np.empty((n, 3, side, side), dtype=np.uint8)
    for i, c in enumerate(kind):
        cx, cy, radius = (rng.uniform(0.35, 0.65) * side, rng.uniform(0.35, 0.65) * side, rng.uniform(0.2, 0.35) * side)
        inside = (
            np.hypot(x - cx, y - cy) < radius,
            np.maximum(abs(x - cx), abs(y - cy)) < radius,
            abs(x - cx) + abs(y - cy) < radius,
        )[c % 3]
        colour = 255 * (0.5 + 0.5 * np.cos(2 * np.pi * (c / k + np.array([0.0, 1 / 3, 2 / 3]))))
        pictures[i] = np.where(inside, colour[:, None, None], rng.uniform(170, 250)).astype(np.uint8)
    return pictures, kind.astype(np.int64)


def make_run(
    folder: Path,
    n: int = 180,
    k: int = 6,
    *,
    names: Sequence[str] | None = None,
    side: int = 40,
    epochs: int = 40,
    **summary: Any,
) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(11)
    images, kind = shapes(n, k, side)
    names = list(names) if names is not None else [f"photos/{'abc'[i % 3]}/{i:05d}.jpg" for i in range(n)]
    cluster = np.where(rng.random(n) < 0.1, rng.integers(0, k, n), kind)
    z = np.eye(k)[cluster] @ rng.normal(size=(k, 16)) + rng.normal(size=(n, 16)) * 0.4
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    confidence = rng.beta(5, 1.5, n)
    numbers = np.stack([confidence, confidence * rng.random(n), rng.beta(6, 1.2, n), rng.random(n)], axis=1)
    with (folder / "assignments.csv").open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file)  # \r\n ends a line: only so a lone \r in a name is quoted
        writer.writerow(COLUMNS)
        for name, c, row in zip(names, cluster, numbers, strict=True):
            writer.writerow([name, c, "", *(f"{v:.4f}" for v in row), "ok" if row[2] >= 0.5 else "unsure"])
    np.save(folder / "embeddings.npy", z.astype(np.float32))
    votes = np.eye(k) * 0.8 + 0.2 / k
    votes[0], votes[1] = 0.05 / k, 0.0
    votes[0, 0], votes[0, 1], votes[1, 1], votes[1, 0] = 0.70, 0.25, 0.9, 0.1
    facts = {
        "n_images": n,
        "ensemble_confusion": votes.tolist(),
        "scores": {"codes": {"acc": 0.9123, "nmi": 0.8456, "ari": 0.7789}, "kmeans_v_xi": {"acc": 0.71, "nmi": 0.62}},
        "warnings": [],
        "minutes": 3.2,
        "source": "/data/photos",
    } | summary
    (folder / "summary.json").write_text(json.dumps(facts))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(_epoch(e, epochs, k)) + "\n" for e in range(epochs)))
    (folder / "config.json").write_text(Config(n_clusters=k, epochs=epochs).to_json())
    (folder / "run.json").write_text(Provenance("/data/photos").to_json())
    (folder / "environment.json").write_text(json.dumps({"concurl": "0.1.0", "device": "cpu"}))
    with (folder / "skipped.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "status", "reason"), ("photos/bad.jpg", "truncated", "12 bytes missing")])
    return Run(folder, images, kind)


def _epoch(epoch: int, last: int, k: int) -> dict[str, Any]:
    done = (epoch + 1) / last
    clustering = done > 0.3
    l2 = np.log(k) * (1 - 0.6 * min(1.0, 3 * max(0.0, done - 0.3))) if clustering else None
    l1 = 0.2 + 0.8 * np.exp(-12 * done)
    return {
        "epoch": epoch,
        "l1": l1,
        "l2": l2,
        "l3": None if l2 is None else l2 + 0.05,
        "loss": l1 + (l2 or 0.0),
        "cluster_sizes": [10 + (epoch * (c + 1)) % 5 for c in range(k)],
        "diversity_mean": 0.4 + 0.5 * done if clustering else None,
        "diversity_std": 0.1 * (1 - done) if clustering else None,
        "feature_std": 0.6,
        "feature_dimensions": 4.5,
        "learning_rate": 5e-4,
    }


def hostile_names() -> list[str]:
    """60 names as os.fsdecode gives them for files that some file system really holds."""
    script = [
        "<script>window.pwned=0</script>.jpg",
        "</script><script>window.pwned=9</script>.png",
        "<img src=x onerror=window.pwned=1>.jpg",
        '"><svg onload=window.pwned=2>.jpg',
        "' onmouseover='window.pwned=3.jpg",
        "javascript:window.pwned=4.jpg",
        "<!--.jpg",
        "]]>.jpg",
        "</style><style>body{display:none}.jpg",
        "</title></textarea><b>bold.jpg",
        "<a href='http://example.com/x'>y.jpg",
        "&lt;b&gt; &amp; &quot;.jpg",
        "../../etc/passwd.jpg",
        "con.jpg",
    ]
    template = ["{{ 7*7 }}.jpg", "{% raw %}.jpg", "${7*7}.jpg", "#{7*7}.jpg", "%s%d%n.jpg", "{0}.jpg"]
    quoting = ['"', "'", '""', "a\"b'c`.jpg", "back\\slash.jpg", "comma,semi;.jpg", "tab\there.jpg", "new\nline.jpg"]
    quoting += ["cr\rname.jpg", "crlf\r\n.jpg", " lead.jpg", "trail ", "\x1b[31mred.jpg", "bell\x07.jpg", "del\x7f.jpg"]
    direction = [
        "evil\u202egpj.exe",
        "\u200frtl.jpg",
        "\u2067iso.jpg",
        "\u05e9\u05dc\u05d5\u05dd.jpg",
        "مرحبا.jpg",
        "zero\u200bwidth.jpg",
    ]
    direction += ["line\u2028sep.jpg", "para\u2029sep.jpg", "\ufeffbom.jpg", "nel\x85.jpg"]
    formulas = ["=1+1.jpg", "=cmd|' /C calc'!A0.jpg", "+1.jpg", "-1.jpg", "@SUM(A1).jpg", '=HYPERLINK("http://x").jpg']
    bytes_ = [b"\xff.jpg", b"caf\xe9.jpg", b"\xed\xa0\x80.jpg", b"ok\xc3.jpg", b"\x80\x81.jpg"]
    other = ["日本語/写真.jpg", "emoji😀.jpg", "e\u0301.jpg", "x" * 240 + ".jpg"]
    names = script + template + quoting + direction + formulas + [os.fsdecode(b) for b in bytes_] + other
    assert len(names) == 60
    return names


def seen_as(name: str) -> str:
    """What a person should see of a name: worked out sign by sign, unlike the page's own way."""
    seen = ""
    for sign in name:
        if "\ud800" <= sign <= "\udfff" or "\x80" <= sign <= "\x9f":
            seen += "\ufffd"
        elif sign < " " or sign == "\x7f":
            seen += {"\n": "␊", "\r": "␍", "\t": "␉", "\x1b": "␛", "\x07": "␇", "\x7f": "␡"}[sign]
        else:
            seen += sign
    return seen
