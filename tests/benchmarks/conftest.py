"""The scripts of benchmarks/ import each other by name, as they do when they are run."""

import sys
from pathlib import Path

# last, so that none of them stands before a test's helper of the same name
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
