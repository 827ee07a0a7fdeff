"""Shows how to read a run's folder: cluster sizes, the surest and the most doubtful pictures, a picture's neighbours.

python examples/read_results.py runs/photos        # needs only numpy; uses pandas if it is there
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np

try:
    import pandas as pd
except ImportError:
    pd = None

run = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example")
if not (run / "assignments.csv").exists():
    raise SystemExit(f"{run} holds no finished run; make one: python examples/own_folder.py -o {run}")

# A file name need not be valid UTF-8: surrogateescape keeps its bytes, so that the file can still be opened.
if pd is not None:
    table = pd.read_csv(run / "assignments.csv", encoding_errors="surrogateescape", keep_default_na=False)
    grouped = table.assign(unsure=table.status == "unsure").groupby("cluster")
    print(grouped.agg(images=("path", "size"), agreement=("agreement", "mean"), unsure=("unsure", "sum")).round(3))
    print("surest of each cluster:", grouped.apply(lambda g: g.loc[g.confidence.idxmax(), "path"]).to_dict())
    print("to look at first:", table.nsmallest(5, ["agreement", "confidence"]).path.tolist())
    paths = table.path.tolist()
else:
    with open(run / "assignments.csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = list(csv.DictReader(file))
    clusters: dict[int, list[dict[str, str]]] = {}
    for row in rows:
        clusters.setdefault(int(row["cluster"]), []).append(row)
    print("cluster  images  agreement  unsure")
    for cluster, members in sorted(clusters.items()):
        agreement = np.mean([float(row["agreement"]) for row in members])
        unsure = sum(row["status"] == "unsure" for row in members)
        print(f"{cluster:7}  {len(members):6}  {agreement:9.3f}  {unsure:6}")
    surest = {k: max(members, key=lambda row: float(row["confidence"]))["path"] for k, members in clusters.items()}
    print("surest of each cluster:", dict(sorted(surest.items())))
    doubtful = sorted(rows, key=lambda row: (float(row["agreement"]), float(row["confidence"])))
    print("to look at first:", [row["path"] for row in doubtful[:5]])
    paths = [row["path"] for row in rows]

# embeddings.npy has a unit vector for each row, in the same order: the product of two is their cosine.
z = np.load(run / "embeddings.npy")
nearest = np.argsort(-(z @ z[0]))[1:4]
print(f"most like {paths[0]}:", [paths[i] for i in nearest])

summary = json.loads((run / "summary.json").read_text())
print(f"mean agreement {summary['mean_agreement']:.3f}; warnings: {summary['warnings'] or 'none'}")
