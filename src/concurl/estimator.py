"""ConCURL: the method behind scikit-learn's interface."""

from __future__ import annotations

import copy
import logging
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state, estimator_html_repr
from sklearn.utils.validation import check_is_fitted
from torch import nn

from concurl.clustering.assign import Assignment, assign
from concurl.config import LARGEST_SEED, Config, filled
from concurl.data.files.lists import LIST_SUFFIXES
from concurl.data.imageset import Skipped
from concurl.data.pictures.reading import Reading
from concurl.data.sources import open_source
from concurl.errors import UserError
from concurl.network.encoder import check_encoder
from concurl.network.trained import TrainedModel
from concurl.progress import AboveBars, end_bars, silent, stages
from concurl.recipes import recipe
from concurl.report.facts import RunFacts
from concurl.report.notebook import summary, typical_pictures
from concurl.report.verdict import judge
from concurl.runs import run
from concurl.training.device import Arithmetic, choose_device, draws_by_seed, torch_of_its_own
from concurl.training.interrupt import Interrupted

log = logging.getLogger("concurl")
Rows = slice | NDArray[np.int64]

# Is nothing of a fit returned but rows? No argument of fit, as a subclass may have a fit of its own.
_ROWS_ALONE: ContextVar[bool] = ContextVar("rows_alone", default=False)


class ConCURL(ClusterMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters images: learns an encoder, prototypes and their consensus from the images alone.

    A source X is a folder, a list of paths or of Pillow's images, the name of a benchmark, or an array of images: uint8, or
    floats in [0, 1], of shape (N, H, W), (N, H, W, 3) or (N, 3, H, W). For a single image give image[None].

    Parameters
    ----------
    n_clusters : K, the number of clusters; None for the recipe's own.
    recipe : the Config to start from, or the name of one.
    options : other fields of Config by name, such as {"epochs": 20, "alpha": 0}.
    encoder : an nn.Module with `.num_features`, instead of the recipe's ResNet.
    views : a callable (uint8 batch (B, 3, H, W), ids, step) -> x1, x2, float32 (B, 3, S, S) each, instead of the
        preset's augmentations. Called in every step; on a GPU such a step is not one CUDA graph, and slower.
    random_state : the seed. With None, a RandomState or a Generator a seed is drawn; it is then in `config_.seed`.
    verbose : show progress.

    Attributes
    ----------
    labels_ : (N,) the cluster of every image that can be read; `predict` gives the same for the same image.
    probabilities_ : (N, K) codes q.
    confidence_ : (N,) the ensemble's probability for the label.
    agreement_ : (N,) share of the ensemble's members that agree with the label.
    embeddings_ : (N, dim) unit cluster embeddings.
    config_ : the Config with all choices made.
    history_ : one dict per epoch, the rows of metrics.jsonl.
    cluster_centers_ : (K, dim) unit prototypes.
    names_ : the files (or indices) that the labels belong to, in order.
    skipped_ : the files that were left out, with reasons.

    Rows are in the order of the source: a folder's files by name, a list in its own order. A copy of a file has a row like
    any other, but training sees each content only once. An array is taken as it is.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from concurl import ConCURL
    >>> images = load_digits().images / 16
    >>> model = ConCURL(n_clusters=10, recipe="digits", options={"epochs": 1}).fit(images)
    >>> bool((model.predict(images[:5]) == model.labels_[:5]).all())
    True
    >>> model.predict_proba(images[:5]).shape, model.transform(images[:5]).shape
    ((5, 10), (5, 64))
    >>> model.assign(images[:5]).agreement.shape
    (5,)
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        *,
        recipe: str | Config = "modern",
        options: Mapping[str, Any] | None = None,
        encoder: nn.Module | None = None,
        views: Callable[..., Any] | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = 0,
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
        """Train on a source and label it. `y` is ignored: only `concurl.clustering.evaluate` looks at true labels."""
        with _heard() if self.verbose else nullcontext(), torch_of_its_own():
            config = self._config()
            _check_given(self.encoder, self.views)
            progress = stages() if self.verbose else silent
            largest = run.largest_size(config)
            images = open_source(
                X, image_size=config.image_size, reading=Reading.of(config), largest=largest, progress=progress
            ).images
            if _ROWS_ALONE.get():
                _check_whole(X, images.each_given().skipped)
            config, chosen = run.settled(config, images)
            run.tell(chosen)
            # a copy: the parameter stays as it was given, and a second fit starts where the first did
            encoder = copy.deepcopy(self.encoder)
            theirs = encoder is not None or self.views is not None
            if encoder is not None:
                check_encoder(encoder, filled(config.image_size), config.channels)
                if self.views is None:  # which may be smaller: not for every network
                    as_large = (
                        "; options={'view_scale': 1} makes the views that it is trained on as large as the images"
                    )
                    check_encoder(encoder, config.view_size, config.channels, as_large)
            try:
                with draws_by_seed(config.seed, choose_device(config.device)) if theirs else nullcontext():
                    result = run.fit(images, config, encoder=encoder, views=self.views)
            except Interrupted as stop:  # without a folder to resume from, this is the end of the run
                raise (KeyboardInterrupt(str(stop)) if stop.exit_code == 130 else SystemExit(stop.exit_code)) from None
        found = result.assignment
        self._take(result.trained, found, slice(None) if images.given is None else images.given.index)
        self.history_ = result.metrics
        given = images.each_given()
        self.names_ = list(given.names)
        self.skipped_ = list(given.skipped)
        if given.skipped:
            log.warning("left out, and so without a row in labels_ (names_ has the others): %s", _few(given.skipped))
        self._trouble = judge(RunFacts.of(result, images)).trouble
        if self._trouble:  # the command line's page would say it
            advice = "what to try: docs/guide.md, section 5"
            log.warning("the run is not healthy: do not rely on labels_ yet (%s); %s", self._trouble, advice)
        self._pictures = typical_pictures(images.images, found.labels, found.embeddings)
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The cluster of each image, which depends on that image alone.

        Files in a folder that cannot be read are left out, with a warning. A list with such a file is refused, as the rows
        after it would belong to other images.
        """
        return self.assign(X).labels

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The codes q, (N, K): the probability of each cluster under the balance of the training set."""
        return self.assign(X).probabilities

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Unit cluster embeddings, (N, dim)."""
        return self.assign(X).embeddings

    def assign(self, X: Any) -> Assignment:
        """All that the model says about new images: labels, confidence, agreement, margin, outlier, embeddings, ..."""
        check_is_fitted(self, "trained_")
        opened = open_source(X, image_size=self.config_.image_size, reading=Reading.of(self.config_))
        images = opened.images.each_given()
        if images.skipped:
            _check_whole(X, images.skipped)
            log.warning("left out of %s: %s", X, _few(images.skipped))
        with torch_of_its_own():
            # The arithmetic of labels_: another estimator may have changed it since, or this may be a new process.
            Arithmetic.of(self.config_.replace(device=str(self.trained_.model.prototypes.device)))
            return assign(self.trained_, images.images)

    def fit_predict(self, X: Any, y: Any = None) -> NDArray[np.int64]:
        """Train on a source; returns `labels_`. A list with a file that cannot be read is refused, as by `predict`."""
        with _rows_alone():
            return self.fit(X).labels_

    def fit_transform(self, X: Any, y: Any = None) -> NDArray[np.float32]:
        """Train on a source; returns `embeddings_`. A list with a file that cannot be read is refused, as by `predict`."""
        with _rows_alone():
            return self.fit(X).embeddings_

    def save(self, folder: str | Path) -> None:
        """Write the model as safetensors and json."""
        check_is_fitted(self, "trained_")
        self.trained_.save(Path(folder).expanduser())

    @classmethod
    def load(cls, folder: str | Path, *, encoder: nn.Module | None = None, device: str | torch.device = "auto") -> Self:
        """A fitted estimator from the folder of a model or of a run; it can label images, but has no `labels_`.

        Its recipe is the model's whole Config, so a clone trains as the model was trained.
        """
        _check_given(encoder)
        with torch_of_its_own():  # and a copy of the encoder, as in fit
            trained = run.model_of(Path(folder).expanduser(), str(device), copy.deepcopy(encoder))
        config = trained.config
        estimator = cls(config.n_clusters, recipe=config, encoder=encoder, random_state=config.seed)
        estimator._take(trained)
        return estimator

    def _repr_html_inner(self) -> str:
        """What a notebook shows: scikit-learn's diagram and, after fit, the clusters."""
        diagram: str = estimator_html_repr(self)
        if not hasattr(self, "labels_"):
            return diagram
        k, skipped = self.config_.n_clusters, len(self.skipped_)
        return diagram + str(summary(self.labels_, self.agreement_, k, skipped, self._pictures, self._trouble))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:  # not where the user chose scikit-learn's display="text"
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def _config(self) -> Config:
        if not isinstance(self.options or {}, Mapping) or not all(isinstance(name, str) for name in self.options or {}):
            raise UserError(f"options={self.options!r}: a dict by names is needed, such as {{'epochs': 20}}")
        options = dict(self.options or {})
        for option, parameter in (("n_clusters", "n_clusters"), ("seed", "random_state")):
            if option in options:
                raise UserError(f"options={{{option!r}: ...}}: give it as {parameter}={options[option]!r} instead")
        if self.n_clusters is not None:
            options["n_clusters"] = self.n_clusters
        start = self.recipe if isinstance(self.recipe, Config) else recipe(str(self.recipe))
        return start.replace(seed=_seed(self.random_state), **options)

    def _take(self, trained: TrainedModel, found: Assignment | None = None, rows: Rows = slice(None)) -> None:
        self.trained_ = trained
        self.config_ = trained.config
        self.cluster_centers_ = trained.centres.cpu().numpy()
        if found is not None:
            self.labels_ = found.labels[rows]
            self.probabilities_ = found.probabilities[rows]
            self.confidence_ = found.confidence[rows]
            self.agreement_ = found.agreement[rows]
            self.embeddings_: NDArray[np.float32] = found.embeddings[rows]


def _check_whole(X: Any, skipped: Sequence[Skipped]) -> None:
    """Refuse a list with files that cannot be read: the rows after a gap would belong to other files."""
    listed = not isinstance(X, str | os.PathLike) or os.fspath(X).lower().endswith(LIST_SUFFIXES)
    if skipped and listed:
        raise UserError(f"cannot be read: {_few(skipped)}; take them off the list, which has a label for each line")


def _few(skipped: Sequence[Skipped]) -> str:
    """The first of them by name, and how many more there are."""
    named = ", ".join(f"{skip.path} ({skip.status})" for skip in skipped[:3])
    return named + (f" and {len(skipped) - 3:,} more" if len(skipped) > 3 else "")


def _seed(random_state: Any) -> int:
    """By scikit-learn's conventions: a number is the seed itself; from anything else a seed is drawn."""
    whole = isinstance(random_state, numbers.Integral)
    try:
        if isinstance(random_state, bool) or (whole and not 0 <= random_state <= LARGEST_SEED):
            raise ValueError
        if isinstance(random_state, np.random.Generator):
            return int(random_state.integers(LARGEST_SEED))
        return int(random_state if whole else check_random_state(random_state).randint(LARGEST_SEED))
    except ValueError:
        wanted = f"a whole number from 0 to {LARGEST_SEED:,}, None, a RandomState or a Generator"
        raise UserError(f"random_state={random_state!r}: {wanted} is needed") from None


def _check_given(encoder: Any, views: Any = None) -> None:
    """Refuse what cannot be an encoder, or cannot make views, before any image is read."""
    if isinstance(encoder, str):
        raise UserError(
            f"encoder={encoder!r}: a module is needed; one of ours by name is options={{'encoder': {encoder!r}}}"
        )
    if encoder is not None:
        name = encoder.__name__ if isinstance(encoder, type) else type(encoder).__name__
        if not isinstance(getattr(encoder, "num_features", None), numbers.Integral):
            raise UserError(f"encoder={name}: it needs num_features, the number of features it gives for an image")
        if not isinstance(encoder, nn.Module):
            raise UserError(f"encoder={name}: an nn.Module is needed, made by calling its class")
    if views is not None and not callable(views):
        raise UserError(
            f"views={views!r}: a callable (uint8 batch, ids, step) -> x1, x2 is needed; ours by name: options={{'preset': ...}}"
        )


@contextmanager
def _rows_alone() -> Iterator[None]:
    token = _ROWS_ALONE.set(True)
    try:
        yield
    finally:
        _ROWS_ALONE.reset(token)


@contextmanager
def _heard() -> Iterator[None]:
    """Show the run's log lines: by the user's own handlers, or on stderr if there are none."""
    level, own = log.level, None if log.hasHandlers() else AboveBars()
    log.setLevel(logging.INFO)
    if own is not None:
        log.addHandler(own)
    try:
        yield
    except BaseException:
        end_bars()  # so that the error begins on a line of its own
        raise
    finally:
        log.setLevel(level)
        if own is not None:
            log.removeHandler(own)
