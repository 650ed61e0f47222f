"""The static images of explorers that notebooks store, and the film of a recorded run."""

import concurrent.futures
import io

import pytest
from explorer_states import make
from PIL import Image

from attnbook.stills import still, studio
from attnbook.video import main


def stills(*explorers):
    """In a thread of its own: another test may hold a browser in this one."""

    def drawn():
        with studio() as mount:
            return [still(mount, explorer.page()) for explorer in explorers]

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return pool.submit(drawn).result()


def test_a_still_is_the_same_bytes_every_time_and_shows_its_state():
    first, again, other, laboratory = stills(
        make("softmax"), make("softmax"), make("softmax", temperature=0.3), make("sandbox")
    )
    assert first == again == stills(make("softmax"))[0]
    assert first != other
    for picture, least in ((first, 400), (laboratory, 500)):
        image = Image.open(io.BytesIO(picture))
        assert image.width == 1488  # two pixels per unit of a chapter's column
        assert image.height > least
        assert len(image.convert("RGB").getcolors()) > 8
        assert len(picture) < 150_000


def test_video_names_the_package_that_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="ffmpeg is needed.*apt-get install ffmpeg"):
        main(["success", "--output", str(tmp_path / "out.mp4")])
    assert not (tmp_path / "out.mp4").exists()


def test_video_names_the_runs_there_are():
    with pytest.raises(SystemExit, match="must be one of the recorded runs .*success.*got 'other'"):
        main(["other"])
