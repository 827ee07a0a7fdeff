"""Where labels come in: which images count, what a judge gives away, which label files are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from concurl.clustering.assign import Assignment
from concurl.clustering.evaluate import evaluate, judge_of, partitions, pixel_baseline, read_labels, table
from concurl.clustering.metrics import scores
from concurl.config import Config
from concurl.errors import UserError

RNG = np.random.default_rng(0)
NAMES = ["a.png", "b/c.png", "d.png"]


def written(tmp_path, text):
    path = tmp_path / "labels.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ---- label files -------------------------------------------------------------------------------------------


def test_labels_come_in_the_runs_order_and_classes_sorted(tmp_path):
    path = written(tmp_path, 'label,path,note\ndog,d.png,1\n"cat, big",b/c.png,2\ndog,a.png,3\nfox,not in the run,4\n')
    labels, classes = read_labels(path, NAMES)
    assert classes == ["cat, big", "dog"]
    assert labels.dtype == np.int64
    assert [classes[i] for i in labels] == ["dog", "cat, big", "dog"]


def test_a_space_that_nobody_sees_makes_no_class(tmp_path):
    labels, classes = read_labels(written(tmp_path, "path,label\na.png,dog \nb/c.png, dog\nd.png,cat\n"), NAMES)
    assert classes == ["cat", "dog"]
    assert labels.tolist() == [1, 1, 0]


def test_a_csv_as_spreadsheets_write_it(tmp_path):
    text = "path,label\r\na.png,1\r\nb/c.png,0\r\nd.png,1\r\n"
    for mark in (b"", b"\xef\xbb\xbf"):  # Excel puts a byte order mark first
        assert read_labels(written(tmp_path, mark + text.encode()), NAMES)[0].tolist() == [1, 0, 1]


def test_a_csv_with_semicolons(tmp_path):
    assert read_labels(written(tmp_path, "path;label\na.png;1,5\nd.png;2\n"), NAMES)[1] == ["1,5", "2"]


def test_names_that_are_no_unicode(tmp_path):
    name = b"\xff.png".decode(errors="surrogateescape")
    assert read_labels(written(tmp_path, b"path,label\n\xff.png,x\n"), [name])[1] == ["x"]


def test_an_umlaut_is_one_however_it_is_written(tmp_path):
    labels, classes = read_labels(
        written(tmp_path, "path,label\nPr\u00e4parat.tif,x\nUbersicht.tif,y\nx\n"), ["Pra\u0308parat.tif"]
    )
    assert labels.tolist() == [0]
    assert classes == ["x"]


@pytest.mark.parametrize(
    "text",
    [
        "Path, Label\nd.png, cat\na.png, dog\n",
        "id;file_name;class\n1;d.png;cat\n2;a.png;dog\n",
        "label\tpath\ncat\td.png\ndog\ta.png\n",
    ],
)
def test_labels_are_read_as_spreadsheets_write_them(tmp_path, text):
    """As lists of images are: by one reader."""
    assert read_labels(written(tmp_path, text), NAMES)[0].tolist() == [1, -1, 0]


@pytest.mark.parametrize("rest", ["", "b/c.png,\n", "b/c.png\n", "a.png,dog\n"])
def test_some_labels_are_enough(tmp_path, rest):
    labels, classes = read_labels(written(tmp_path, f"path,label\nd.png,cat\na.png,dog\n{rest}"), NAMES)
    assert classes == ["cat", "dog"]
    assert labels.tolist() == [1, -1, 0]


def test_a_path_may_start_where_that_of_a_list_may(tmp_path, monkeypatch):
    """From the root of the run, the csv's folder or the current one, or whole: the same file has one label."""
    monkeypatch.chdir(tmp_path)
    root, table = tmp_path / "photos", tmp_path / "inner" / "labels.csv"
    table.parent.mkdir()
    for start in (f"{root}/", "../photos/", "photos/", "./photos/", "photos/../photos/", ""):
        table.write_text("path,label\n" + "".join(f"{start}{name},{i % 2}\n" for i, name in enumerate(NAMES)))
        assert read_labels(table, NAMES, str(root))[0].tolist() == [0, 1, 0]
    whole = str(tmp_path / "elsewhere.png")  # as a list may name it
    table.write_text("path,label\n../elsewhere.png,x\n")
    assert read_labels(table, [*NAMES, whole], str(root))[0].tolist() == [-1, -1, -1, 0]
    table.write_text("path,label\nphotos/a.png,x\na.png,y\n")
    with pytest.raises(UserError, match=r"'a.png' has two labels, 'x' and 'y'"):
        read_labels(table, NAMES, str(root))


def test_labels_of_strangers_are_counted(tmp_path, caplog):
    read_labels(written(tmp_path, "path,label\nd.png,cat\nx.png,dog\ny.png,dog\n"), NAMES)
    assert "2 of its 3 paths ignored: not in the run" in caplog.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "which column holds the paths? Call it path (found: none)"),
        ("path,label\n", "its column label is empty"),
        ("name,label\na.png,1\n", "which column holds the paths? Call it path (found: name, label)"),
        ("path,kind\na.png,1\n", "which column holds the labels? Call it label (found: path, kind)"),
        (
            "path,label\nx.png,1\ny.png,2\n",
            "none of its 2 paths is in the run (it has, for example, 'x.png', the run 'a.png')",
        ),
        (b"path,label\n\xe4.png,1\n", "save it as csv in UTF-8"),
        ("path,label\na.png,1\n".encode("utf-16"), "text in UTF-16; save it as csv in UTF-8"),
        ("path,label\na.png,\nb/c.png\n", "its column label is empty"),
        ("path,label\na.png,1\nd.png,1\na.png,2\n", "'a.png' has two labels, '1' and '2'"),
        ("path,label\na.png," + 200_000 * "1", "line 2: field larger"),
    ],
)
def test_what_does_not_match_is_refused_in_one_line(tmp_path, text, reason):
    path = written(tmp_path, text)
    with pytest.raises(UserError) as caught:
        read_labels(path, NAMES)
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_is_refused_in_one_line(tmp_path):
    (tmp_path / "labels.csv").mkdir()
    with pytest.raises(UserError, match=r"labels\.csv: cannot be read as a csv \(Is a directory\)$"):
        read_labels(tmp_path / "labels.csv", NAMES)
    with pytest.raises(UserError, match=r"label\.csv: no such file or folder; did you mean .*labels\.csv\?$"):
        read_labels(tmp_path / "label.csv", NAMES)


# ---- scores ------------------------------------------------------------------------------------------------


def test_images_without_a_label_do_not_count():
    labels, found = RNG.integers(-1, 3, 50), {"a": RNG.integers(0, 3, 50), "b": RNG.integers(0, 5, 50)}
    known = [i for i in range(50) if labels[i] != -1]
    assert 0 < len(known) < 50
    got = evaluate(found, labels)
    for name in found:
        assert got[name] == scores([labels[i] for i in known], [found[name][i] for i in known])
    other = {name: np.where(labels < 0, 4 - clusters, clusters) for name, clusters in found.items()}
    assert evaluate(other, labels) == got


def test_no_label_at_all_is_refused():
    with pytest.raises(UserError, match="nothing to evaluate"):
        evaluate({"a": np.zeros(3, dtype=np.int64)}, np.full(3, -1))


def test_the_judge_gives_scores_of_the_asked_images_and_nothing_else():
    labels = RNG.integers(-1, 4, 100)
    ids = RNG.permutation(100)[:40]
    clusters = RNG.integers(0, 4, 40)
    said = judge_of(labels)(ids, clusters)
    known = labels[ids] >= 0
    assert said == scores(labels[ids][known], clusters[known])
    assert set(said) == {"acc", "nmi", "ari"}
    assert all(type(value) is float for value in said.values())
    renamed = np.where(labels >= 0, 3 - labels, -1)  # names of classes cannot be told from what it says
    assert judge_of(renamed)(ids, clusters) == pytest.approx(said, abs=1e-12)


def test_the_judge_has_nothing_to_say_without_labels():
    assert judge_of(None) is None
    assert judge_of(np.full(5, -1)) is None
    labels = np.array([-1, -1, 0, 1])
    assert judge_of(labels)(np.array([0, 1]), np.array([0, 1])) == {}
    assert judge_of(labels)(np.array([0, 2, 3]), np.array([7, 0, 1]))["acc"] == 1


# ---- partitions --------------------------------------------------------------------------------------------


def an_assignment(n=60, k=3):
    truth = np.arange(n) % k
    y = (np.eye(8)[truth] + 0.05 * RNG.normal(size=(n, 8))).astype(np.float32)
    vote = RNG.random((n, k)).astype(np.float32)
    some = np.zeros(n, np.float32)
    labels, p_labels = RNG.integers(0, k, n), RNG.integers(0, k, n)
    q = np.zeros((n, k), np.float32)
    shares = np.zeros((k, k), np.float32)
    return Assignment(labels, q, p_labels, vote, some, shares, some, y, {"y_theta": y, "v_xi": -y}), truth


def test_every_way_to_read_clusters():
    a, truth = an_assignment()
    found = partitions(a, Config(n_clusters=3))
    assert list(found) == ["codes", "p", "vote", "kmeans_y_theta", "kmeans_v_xi", "balanced_v_xi"]
    np.testing.assert_array_equal(found["codes"], a.labels)
    np.testing.assert_array_equal(found["p"], a.p_labels)
    np.testing.assert_array_equal(found["vote"], a.vote.argmax(1))
    assert adjusted_rand_score(truth, found["kmeans_y_theta"]) == 1


def test_byol_alone_is_scored_by_the_clusters_that_it_gives():
    """They are k-means' on v_xi with the run's own seed, on the images it was trained on: another k-means may find others."""
    a, _ = an_assignment()
    found = partitions(a, Config(n_clusters=3, beta=0, gamma=0))
    assert list(found) == ["kmeans_v_xi", "kmeans_y_theta", "balanced_v_xi"]
    np.testing.assert_array_equal(found["kmeans_v_xi"], a.labels)


@pytest.mark.parametrize("balance", [1.0, 0.0])
def test_k_means_is_told_once_that_clusters_have_equal_sizes(balance):
    """As the codes are: without that, what balance brings would pass for what was learned."""
    angles = np.concatenate([RNG.normal(0, 0.3, 90), RNG.normal(1.2, 0.1, 30)])  # a large kind and a small one
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    a = replace(an_assignment(120, 2)[0], branches={"v_xi": x})
    found = partitions(a, Config(n_clusters=2, balance=balance, epsilon=0.05))
    smaller = {name: np.bincount(labels, minlength=2).min() for name, labels in found.items()}
    assert (smaller["balanced_v_xi"] > smaller["kmeans_v_xi"]) == (balance == 1)


@pytest.mark.parametrize(("left", "clusters", "ways"), [(5, 6, 3), (6, 6, 6)])
def test_fewer_images_than_clusters_may_be_left_of_a_runs(left, clusters, ways):
    """Its folder lives on: those that are there can still be scored."""
    a, _ = an_assignment(left, clusters)
    every = ["codes", "p", "vote", "kmeans_y_theta", "kmeans_v_xi", "balanced_v_xi"]
    assert list(partitions(a, Config(n_clusters=clusters))) == every[:ways]


def test_table_shows_every_partition():
    text = table({"codes": {"acc": 0.1234, "nmi": 0.5, "ari": 0.25}, "pixels": {"acc": 1, "nmi": 0, "ari": -0.5}})
    rows = [line.rsplit(maxsplit=3) for line in text.splitlines()]
    assert rows[0] == ["ACC", "NMI", "ARI"]
    assert [title.strip() for title, *_ in rows[1:]] == ["These clusters (codes)", "pixels"]  # as on the page
    assert [numbers for _, *numbers in rows[1:]] == [["0.123", "0.500", "0.250"], ["1.000", "0.000", "-0.500"]]
    assert len({len(line) for line in text.splitlines()}) == 1  # a minus sign does not shift its column


def test_pixel_baseline_is_kmeans_on_pixels():
    truth = np.arange(45) % 3
    images = (torch.rand(3, 3, 4, 4).numpy()[truth] * 200 + RNG.integers(0, 20, (45, 3, 4, 4))).astype(np.uint8)
    assert pixel_baseline(images, truth, 3)["acc"] == 1
    noise = RNG.integers(0, 256, (45, 3, 4, 4), dtype=np.uint8)
    theirs = KMeans(3, n_init=10, random_state=0).fit_predict(noise.reshape(45, -1) / np.float32(255))
    assert pixel_baseline(noise, truth, 3) == scores(truth, theirs)
