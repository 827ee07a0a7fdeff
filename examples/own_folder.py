"""Shows all steps for a folder of pictures: check the files, train, write a run's folder with a page.

python examples/own_folder.py PHOTOS -k 10 -o runs/photos
python examples/own_folder.py                # draws its own pictures; about a minute on a laptop
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from concurl.cli import main

# A small network with small heads, which a CPU can train in a minute on small pictures.
LAPTOP = ["--recipe", "digits", "--image-size", "16", "--batch-size", "32", "--epochs", "60", "--overwrite"]


def draw_patterns(folder: Path, n: int = 240) -> Path:
    """n small pictures of four kinds: horizontal and vertical stripes, a disc, a ring."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:16, :16] / 16 - 0.5
    for i in range(n):
        a, b, size = rng.uniform(-0.1, 0.1), rng.uniform(-0.1, 0.1), rng.uniform(0.2, 0.3)
        far = np.hypot(x - a, y - b)
        kinds = (np.sin(25 * (y - a)) > 0, np.sin(25 * (x - b)) > 0, far < size, abs(far - size) < 0.09)
        pixels = 60 + 130 * kinds[i % 4] + rng.normal(0, 15, (16, 16))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i:03d}.png")
    return folder


def run(source: str, output: Path, options: list[str]) -> int:
    main(["audit", source])  # which files can be used, and why the others cannot; add -o files.csv for a row per file
    code = main(["fit", source, "-o", str(output), *options])
    if code == 0:
        print(f"look at {output / 'report.html'}, or go on with: python examples/read_results.py {output}")
    return code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="a folder of pictures (default: drawn for the occasion)")
    parser.add_argument("-k", default="4", help="number of clusters")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/example"))
    parser.add_argument("--epochs", help="passes over the pictures (default: by their number)")
    given = parser.parse_args()
    options = ["-k", given.k] + (["--epochs", given.epochs] if given.epochs else [])
    if given.folder:
        raise SystemExit(run(given.folder, given.output, options))
    drawn = draw_patterns(given.output.with_name(f"{given.output.name}-pictures"))  # kept: the run refers to them
    raise SystemExit(run(str(drawn), given.output, [*LAPTOP, *options]))
