"""What the estimator shows: a page in a notebook, lines and a bar while it trains."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import config_context

import concurl
from concurl import ConCURL
from concurl.errors import UserError
from concurl.report.notebook import summary

OPTIONS = {"epochs": 1}


def test_a_notebook_counts_one_as_one() -> None:
    page = summary(np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.float32), 2, 0, {})
    assert "1 image in 2 clusters; " in page
    assert "1 further cluster is smaller, or empty." in page


def test_a_notebook_shows_the_clusters(images: np.ndarray, tmp_path: Path) -> None:
    unfitted = ConCURL(3)._repr_mimebundle_()["text/html"]
    assert "ConCURL" in unfitted
    assert "Cluster 0" not in unfitted
    fitted = ConCURL(10, recipe="digits", options=OPTIONS).fit(images)
    page = fitted._repr_mimebundle_()["text/html"]
    assert "concurl-summary" in fitted._repr_html_()
    assert "300 images in 10 clusters" in page
    for cluster, size in enumerate(np.bincount(fitted.labels_, minlength=10)):
        assert not size or f'Cluster {cluster}</th><td style="text-align:right">{size}</td>' in page
    assert page.count("<img ") == sum(min(8, n) for n in np.bincount(fitted.labels_))
    assert "http" not in page.partition("concurl-summary")[2]  # the pictures are in it
    fitted.save(tmp_path / "model")
    assert "Cluster 0" not in ConCURL.load(tmp_path / "model")._repr_html_()
    with config_context(display="text"):
        assert "text/html" not in fitted._repr_mimebundle_()


@pytest.mark.parametrize("agreed", [0.0, 1.1])  # no run's agreement is below it, or every run's
def test_a_fit_that_is_not_healthy_says_so_as_the_command_line_does(
    images: np.ndarray, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, agreed: float
) -> None:
    monkeypatch.setattr("concurl.report.checks.AGREED", agreed)
    monkeypatch.setattr("concurl.report.checks.STUCK", 9.0)
    monkeypatch.setattr("concurl.report.checks.FLAT", 0.0)
    fitted = ConCURL(3, recipe="digits", options=OPTIONS).fit(images)
    warned = "do not rely on labels_ yet (the ensemble disagrees with these clusters)"
    assert (warned in caplog.text) is (agreed > 1)
    shown = "do not rely on these clusters yet (the ensemble disagrees with these clusters)"
    assert (shown in fitted._repr_html_()) is (agreed > 1)


def test_a_notebook_offers_the_public_names() -> None:
    script = "import concurl, sys; assert set(concurl.__all__) <= set(dir(concurl)); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert concurl.ConCURL is ConCURL


def test_verbose_is_seen(tmp_path: Path) -> None:
    script = (
        "import sys, numpy as np; from concurl import ConCURL\n"
        "images = np.random.default_rng(0).integers(0, 255, (300, 12, 12), dtype=np.uint8)\n"
        "for verbose in (False, True):\n"
        "    ConCURL(3, recipe='digits', options={'epochs': 1, 'image_size': None}, verbose=verbose).fit(images)\n"
        "    print('fitted', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    quiet, loud, _ = done.stderr.split("fitted")
    assert "train:" in loud
    assert "chose " in loud
    assert "train:" not in quiet  # but warnings are for everybody


def test_verbose_is_over_after_fit(
    images: np.ndarray, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(own)])
    log = logging.getLogger("concurl")
    before = log.level, list(log.handlers)
    ConCURL(3, recipe="digits", options=OPTIONS, verbose=True).fit(images)
    assert (log.level, log.handlers) == before
    assert "train: 4 of 4 steps" in own.getvalue()
    assert capsys.readouterr().err == "", "said twice, where the user has a handler"
    with pytest.raises(UserError):
        ConCURL(3, recipe="digits", options=OPTIONS, verbose=True).fit("nowhere")
    assert (log.level, log.handlers) == before


def test_a_bar_that_is_cut_short_ends_its_line(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with pytest.raises(KeyboardInterrupt) as stopped:
        ConCURL(3, recipe="digits", options=OPTIONS, views=stop, verbose=True).fit(images)
    assert stopped.traceback, "it holds the bar, as a notebook does"
    assert "train: " in terminal.getvalue()
    assert terminal.getvalue().endswith("\n")
