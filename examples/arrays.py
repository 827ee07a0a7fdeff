"""Shows how to cluster numpy arrays the scikit-learn way: fit, predict, transform, clone, save, load.

python examples/arrays.py            # 1,797 handwritten digits; about a minute on a laptop
python examples/arrays.py 120        # all the epochs of the recipe
"""

import sys
import tempfile
from pathlib import Path

from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from concurl import ConCURL

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 30

# (1797, 8, 8) from 0 to 16 -> floats in [0, 1]. Colour images are (N, H, W, 3); uint8 is taken as it is.
digits = load_digits()
images = digits.images / 16
known, new = images[:1500], images[1500:]

model = ConCURL(n_clusters=10, recipe="digits", options={"epochs": epochs}, random_state=0)
labels = model.fit_predict(known)

print(f"{len(labels)} images, sizes of the clusters: {sorted(int((labels == k).sum()) for k in range(10))}")
print(f"the ensemble agrees with {model.agreement_.mean():.0%} of the labels on average")
print(f"unsure (below one half): {(model.agreement_ < 0.5).sum()} images")

# The true digits were not used above; here they only score the result.
print(f"adjusted Rand index, training images: {adjusted_rand_score(digits.target[:1500], labels):.3f}")
print(f"adjusted Rand index, new images:      {adjusted_rand_score(digits.target[1500:], model.predict(new)):.3f}")

# A label depends on the image alone: it is the same one at a time or all together.
assert (model.predict(known[:5]) == labels[:5]).all()
assert model.predict_proba(new).shape == (len(new), 10)  # probabilities of the clusters
assert model.transform(new).shape == (len(new), 64)  # unit embeddings, for your own search or map

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "model")  # safetensors and json, no pickle
    again = ConCURL.load(Path(folder) / "model")
assert (again.predict(new) == model.predict(new)).all()
print("saved and loaded: the same labels")

# The same settings with another K and another seed, not yet fitted.
print("next:", clone(model).set_params(n_clusters=12, random_state=1))
