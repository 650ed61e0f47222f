"""Fashion-MNIST: its places and their order, refusals, downloads, and the data themselves."""

import gc
import gzip
import hashlib
import http.server
import math
import runpy
import struct
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnopt import datasets
from attnopt.datasets import CLASSES, FILES, SAMPLE, Published, fashion_mnist, fashion_mnist_sample, missing, parse_idx

# pooch leaves the socket of a download that failed to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
ROOT = Path(__file__).parent.parent
IMAGES, LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
UPSTREAM_MD5 = {  # from the table in the README of zalandoresearch/fashion-mnist
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
UPSTREAM_TIME = {"train": 1504176606, "t10k": 1504176627}  # in the published gzip headers


def idx(array):
    """An array of bytes as an IDX file."""
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


class World:
    """A small dataset of 200 test images in place of the real one, and the places where it may be."""

    def __init__(self, folder):
        numbers = np.random.default_rng(0)
        self.images = numbers.integers(0, 256, (200, 28, 28), dtype=np.uint8)
        self.labels = numbers.integers(0, 10, 200, dtype=np.uint8)
        contents = {IMAGES: idx(self.images), LABELS: idx(self.labels)}
        self.archives = {name: gzip.compress(bytes_, mtime=0) for name, bytes_ in contents.items()}
        self.files = {
            name: Published(shape, sha256(contents[name]), sha256(self.archives[name]))
            for name, shape in ((IMAGES, self.images.shape), (LABELS, self.labels.shape))
        }
        self.cache, self.debian, self.named = folder / "data" / "fashion-mnist", folder / "debian", folder / "named"

    def fill(self, place, mtime=0):
        """Put the files into a place; another time gives other archives with the same contents."""
        place.mkdir(parents=True)
        for name, archive in self.archives.items():
            (place / name).write_bytes(gzip.compress(gzip.decompress(archive), mtime=mtime))

    def is_given(self, folder=None):
        images, labels = fashion_mnist("test", folder)
        return np.array_equal(images, self.images) and np.array_equal(labels, self.labels)

    def cached(self):
        """Names of what a download has left, but for its lock."""
        return {path.name for path in self.cache.iterdir() if path.name != "download.lock"}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path)
    monkeypatch.setattr(datasets, "FILES", world.files)
    monkeypatch.setattr(datasets, "DEBIAN", world.debian)
    monkeypatch.setattr(datasets, "MIRRORS", ("http://127.0.0.1:9/",))  # nobody listens there
    monkeypatch.setenv("ATTNOPT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return world


class Mirror(http.server.BaseHTTPRequestHandler):
    """Serves the server's `files`; may drop the connection after some bytes, or send an error."""

    def do_GET(self):
        name, server = self.path.rpartition("/")[2], self.server
        server.log.append(name)
        body = server.files.get(name)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.drop])

    def log_message(self, *arguments):
        """Keep the terminal for pytest."""


@pytest.fixture
def mirror(world, monkeypatch):
    """A mirror on localhost with the small dataset."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    server.files, server.drop, server.log = dict(world.archives), None, []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setattr(datasets, "MIRRORS", (f"http://127.0.0.1:{server.server_address[1]}/",))
    yield server
    gc.collect()
    server.shutdown()
    server.server_close()
    thread.join()


# The places


def test_the_cache_comes_first_then_debian_then_the_network(world, mirror):
    assert missing() == [IMAGES, LABELS]
    world.fill(world.debian, mtime=1)
    assert missing() == []
    assert world.is_given()
    world.fill(world.cache)
    (world.debian / IMAGES).write_bytes(b"not looked at")
    assert world.is_given()
    assert mirror.log == []
    for place in (world.cache, world.debian):
        for name in world.files:
            (place / name).unlink()
    assert world.is_given()
    assert mirror.log == [IMAGES, LABELS]
    assert missing() == []


def test_a_named_folder_is_the_only_place(world, mirror):
    world.fill(world.cache)
    world.fill(world.debian)
    world.fill(world.named, mtime=1)
    assert world.is_given(world.named)
    assert world.is_given(str(world.named))
    (world.named / LABELS).unlink()
    with pytest.raises(FileNotFoundError, match=f"named' has no file {LABELS}"):
        fashion_mnist("test", world.named)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fashion_mnist("test", "nowhere")
    assert mirror.log == []


def test_without_the_variable_the_cache_is_the_users(world, monkeypatch):
    monkeypatch.setattr(datasets.pooch, "os_cache", lambda project: world.cache.parent.parent / project)
    monkeypatch.setenv("ATTNOPT_DATA", "")
    world.fill(world.cache.parent.parent / "attnopt" / "fashion-mnist")
    assert world.is_given()


@pytest.mark.parametrize("split", ["t10k", "Test", "", None, ["test"]])
def test_an_unknown_split_is_named(split):
    with pytest.raises(ValueError, match='split must be "train" or "test", got'):
        fashion_mnist(split)


# Refusals


def flipped(archive):
    """One bit of the compressed stream changed."""
    return archive[:100] + bytes([archive[100] ^ 1]) + archive[101:]


def tampered(archive):
    """Another pixel, properly compressed."""
    contents = gzip.decompress(archive)
    return gzip.compress(contents[:-1] + bytes([contents[-1] ^ 1]))


DAMAGES = [flipped, tampered, lambda archive: archive[:-1000], lambda archive: archive[:5], lambda archive: b""]


@pytest.mark.parametrize(
    ("place", "damage"), [*(("cache", damage) for damage in DAMAGES), ("debian", flipped), ("named", tampered)]
)
def test_a_damaged_file_is_refused_in_every_place(world, mirror, place, damage):
    for other in ("debian", "cache"):  # good files further down, and for a named folder everywhere else
        if place == "named" or (place, other) == ("cache", "debian"):
            world.fill(getattr(world, other))
    world.fill(getattr(world, place))
    path = getattr(world, place) / IMAGES
    path.write_bytes(damage(world.archives[IMAGES]))
    with pytest.raises(ValueError, match="was not used") as refusal:
        fashion_mnist("test", world.named if place == "named" else None)
    try:
        found = sha256(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error):
        found = sha256(path.read_bytes())
    for word in (str(path), world.files[IMAGES].contents, found, "Delete the file", "reinstall the package"):
        assert word in str(refusal.value)
    assert mirror.log == []


# Downloads


def test_without_data_or_network_every_way_out_is_named(world):
    with pytest.raises(RuntimeError, match="could not be downloaded") as advice:
        fashion_mnist("test")
    for word in (IMAGES, LABELS, "package dataset-fashion-mnist", "name a folder", "go online", str(world.cache)):
        assert word in str(advice.value)


def test_a_cache_that_cannot_be_written_is_named(world, mirror):
    world.cache.parent.write_text("a file where a folder should be")
    with pytest.raises(RuntimeError, match=r"could not be downloaded to .*data"):
        fashion_mnist("test")


def test_the_next_mirror_is_tried(world, mirror, monkeypatch):
    (good,) = datasets.MIRRORS
    monkeypatch.setattr(datasets, "MIRRORS", ("http://127.0.0.1:9/", good))
    assert world.is_given()


def test_a_dropped_connection_leaves_nothing(world, mirror):
    mirror.drop = 40_000
    with pytest.raises(RuntimeError, match="could not be downloaded"):
        fashion_mnist("test")
    assert missing() == [IMAGES, LABELS]
    assert world.cached() == set()
    mirror.drop = None
    assert world.is_given()


def test_finished_files_are_kept_when_a_later_one_fails(world, mirror):
    del mirror.files[LABELS]
    with pytest.raises(RuntimeError, match=LABELS):
        fashion_mnist("test")
    assert missing() == [LABELS]
    mirror.files[LABELS] = world.archives[LABELS]
    assert world.is_given()
    assert mirror.log.count(IMAGES) == 1


def test_a_wrong_file_from_the_network_is_not_used(world, mirror):
    mirror.files[IMAGES] = tampered(world.archives[IMAGES])
    with pytest.raises(RuntimeError, match=f"expected {world.files[IMAGES].archive}"):
        fashion_mnist("test")
    assert missing() == [IMAGES, LABELS]
    assert world.cached() == set()


def test_callers_at_the_same_time_do_not_disturb_each_other(world, mirror):
    results = []
    threads = [threading.Thread(target=lambda: results.append(world.is_given())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    assert sorted(mirror.log) == [IMAGES, LABELS]


# The format


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 2**31))
def test_idx_is_read_as_it_was_written(shape, seed):
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    parsed = parse_idx(idx(array), tuple(shape))
    assert np.array_equal(parsed, array)
    assert parsed.flags.writeable


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"\0\0\x0d" + data[3:], "magic number 0x0803, got 0x0d03"),  # floats
        (lambda data: idx(np.zeros(24, np.uint8)), "magic number 0x0803, got 0x0801"),
        (lambda data: idx(np.zeros((2, 4, 3), np.uint8)), r"must have shape \(2, 3, 4\), got \(2, 4, 3\)"),
        (lambda data: data[:-1], "has 40 bytes, got 39"),
        (lambda data: data + b"\0", "has 40 bytes, got 41"),
        (lambda data: data[:6], r"got \(0, 0, 0\)"),
        (lambda data: b"", "got 0x0000"),
    ],
)
def test_other_files_are_not_taken_for_idx(change, said):
    with pytest.raises(ValueError, match=said):
        parse_idx(change(idx(np.zeros((2, 3, 4), np.uint8))), (2, 3, 4))


# The data


@pytest.fixture(scope="module", params=["train", "test"])
def real(request):
    return request.param, *fashion_mnist(request.param)


def test_every_class_has_its_images(real):
    split, images, labels = real
    each = {"train": 6000, "test": 1000}[split]
    assert images.shape == (10 * each, 28, 28)
    assert images.dtype == torch.uint8
    assert labels.dtype == torch.int64
    assert labels.bincount().tolist() == [each] * len(CLASSES)


@pytest.mark.parametrize("name", FILES)
def test_the_pins_are_the_publishers(name):
    """Debian's archive under the publisher's header is the publisher's, by the MD5 that the publisher gives."""
    archive = datasets._locate(name).read_bytes()
    assert sha256(gzip.decompress(archive)) == FILES[name].contents
    assert len(gzip.decompress(archive)) == 4 * (1 + len(FILES[name].shape)) + math.prod(FILES[name].shape)
    stream = archive[10:] if archive[3] == 0 else archive[archive.index(b"\0", 10) + 1 :]
    header = struct.pack("<4BI2B", 0x1F, 0x8B, 8, 8, UPSTREAM_TIME[name[: name.index("-")]], 0, 3)
    published = header + name.removesuffix(".gz").encode() + b"\0" + stream
    assert hashlib.md5(published).hexdigest() == UPSTREAM_MD5[name]
    assert sha256(published) == FILES[name].archive


def test_the_sample_is_the_first_forty_of_each_class():
    images, labels = fashion_mnist_sample()
    assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
    assert images.shape == (400, 28, 28)
    every, names = fashion_mnist("test")
    seen = torch.nn.functional.one_hot(names).cumsum(0).gather(1, names[:, None])[:, 0]
    rows = torch.nonzero(seen <= 40)[:, 0]
    assert torch.equal(images, every[rows])
    assert torch.equal(labels, names[rows])
    with np.load(SAMPLE) as arrays:
        assert np.array_equal(arrays["index"], rows)


def test_the_script_makes_the_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fashion_mnist_sample.py", str(tmp_path / "again.npz")])
    runpy.run_path(str(ROOT / "experiments" / "fashion_mnist_sample.py"))
    with np.load(tmp_path / "again.npz") as again, np.load(SAMPLE) as kept:
        assert sorted(again) == sorted(kept)
        for key in kept:
            assert again[key].dtype == kept[key].dtype
            assert np.array_equal(again[key], kept[key])
