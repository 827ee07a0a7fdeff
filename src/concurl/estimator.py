"""ConCURL: the method behind scikit-learn's interface."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted
from torch import nn

from concurl import run
from concurl.clustering.assign import Assignment, assign
from concurl.commands.talk import reader_progress
from concurl.data.opened import open_source
from concurl.network.trained import TrainedModel
from concurl.recipes import recipe
from concurl.report.notebook import summary, typical_pictures


class ConCURL(ClusterMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters images: learns an encoder, prototypes and their consensus from the images alone.

    A source is a folder, a list of paths, a benchmark's name, or an array of images: uint8, or floats in [0, 1],
    of shape (N, H, W), (N, H, W, 3) or (N, 3, H, W).

    Parameters
    ----------
    n_clusters : K, the number of clusters.
    recipe : the named Config to start from.
    options : any other Config fields by name, such as {"epochs": 20, "alpha": 0}.
    encoder : an nn.Module with `.num_features`, instead of the recipe's ResNet.
    views : a callable (uint8 batch, ids, step) -> x1, x2, instead of the preset's augmentations.
    random_state : the seed.
    verbose : show progress.

    Attributes
    ----------
    labels_ : (N,) cluster of every training image; `predict` gives the same for the same image.
    probabilities_ : (N, K) codes q.
    agreement_ : (N,) share of the ensemble's members that agree with the label.
    embeddings_ : (N, dim) unit cluster embeddings.
    config_ : the Config with all choices made.
    history_ : one dict per epoch, the rows of metrics.jsonl.
    names_ : the files (or indices) that the labels belong to, in order.
    skipped_ : the files that were left out, with reasons.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from concurl import ConCURL
    >>> images = load_digits().images / 16
    >>> model = ConCURL(n_clusters=10, recipe="digits", options={"epochs": 1}).fit(images)
    >>> bool((model.predict(images[:5]) == model.labels_[:5]).all())
    True
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        recipe: str = "modern",
        options: Mapping[str, Any] | None = None,
        encoder: nn.Module | None = None,
        views: Callable[..., Any] | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.recipe = recipe
        self.options = options
        self.encoder = encoder
        self.views = views
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on a source and label it. `y` is ignored: labels are for `concurl.clustering.evaluate` alone."""
        if self.verbose:
            _speak()
        config = recipe(self.recipe).replace(n_clusters=self.n_clusters, seed=self.random_state, **(self.options or {}))
        progress = reader_progress() if self.verbose else None
        largest = run.largest_size(config)
        images = open_source(X, image_size=config.image_size, largest=largest, progress=progress).images
        config, _ = run.settled(config, images)
        # a parameter stays as it was given: a second fit starts where the first did
        encoder = copy.deepcopy(self.encoder)
        result = run.fit(images, config, encoder=encoder, views=self.views)
        self._take(result.trained, result.assignment)
        self.history_ = result.metrics
        self.names_ = list(images.names)
        self.skipped_ = list(images.skipped)
        self._pictures = typical_pictures(images.images, self.labels_, self.embeddings_)
        return self

    def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = self.fit(X).labels_
        return labels

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The cluster of each image, a function of that image alone."""
        return self._assign(X).labels

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The codes q, (N, K): the probability of each cluster under the balance of the training set."""
        return self._assign(X).probabilities

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Unit cluster embeddings, (N, dim)."""
        return self._assign(X).embeddings

    def fit_transform(self, X: Any, y: Any = None, **kwargs: Any) -> NDArray[np.float32]:
        embeddings: NDArray[np.float32] = self.fit(X).embeddings_
        return embeddings

    def save(self, folder: str | Path) -> None:
        """Write the model as safetensors and json."""
        check_is_fitted(self, "trained_")
        self.trained_.save(Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, encoder: nn.Module | None = None, device: str = "auto") -> Self:
        """A fitted estimator from a model folder or a run's folder; it can label, but has no `labels_`."""
        trained = run.model_of(Path(folder), device, encoder)
        estimator = cls(trained.config.n_clusters, encoder=encoder, random_state=trained.config.seed)
        estimator._take(trained)
        return estimator

    def _repr_html_inner(self) -> str:
        """What a notebook shows: scikit-learn's diagram and, after fit, the clusters."""
        diagram: str = estimator_html_repr(self)
        if not hasattr(self, "labels_"):
            return diagram
        k, skipped = self.config_.n_clusters, len(self.skipped_)
        return diagram + str(summary(self.labels_, self.agreement_, k, skipped, self._pictures))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:  # not where the user chose scikit-learn's display="text"
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def _take(self, trained: TrainedModel, assignment: Assignment | None = None) -> None:
        self.trained_ = trained
        self.config_ = trained.config
        self.cluster_centers_ = trained.centres.cpu().numpy()
        if assignment is not None:
            self.labels_ = assignment.labels
            self.probabilities_ = assignment.probabilities
            self.agreement_ = assignment.agreement
            self.embeddings_ = assignment.embeddings

    def _assign(self, X: Any) -> Assignment:
        check_is_fitted(self, "trained_")
        images = open_source(X, image_size=self.config_.image_size).images
        return assign(self.trained_, images.images)


def _speak() -> None:
    """Let the run's lines be seen: on the user's own handlers where there are some, else on stderr."""
    log = logging.getLogger("concurl")
    log.setLevel(logging.INFO)
    if not log.hasHandlers():
        log.addHandler(logging.StreamHandler())
