"""Videos of recorded runs: the laboratory's page, filmed frame by frame."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Error
from tqdm import tqdm

from attnbook.explorers.sandbox import Sandbox
from attnbook.stills import studio
from attnopt.checks import check_count
from attnopt.clustering.sandbox import Run, load_run

# Wider than a chapter's column, with room for the read-out, whose length varies, below the pictures.
FILMED = ".attnopt-explorer { width: 60rem; } .ao.ao .ao-readout { display: block; min-height: 6rem; }"
TURNED = """hash => new Promise((done) => {
  const drawn = () => requestAnimationFrame(() => requestAnimationFrame(() => done()));
  if (location.hash === hash) return drawn();
  addEventListener("hashchange", drawn, { once: true });
  location.hash = hash;
})"""


def write_video(run: Run, path: Path, fps: int = 12, every: int = 1) -> int:
    """Write the frames of a run to an mp4 file.

    Args:
        run: the run, as returned by `load_run`.
        path: the file's path.
        fps: the number of frames per second.
        every: 1 for all frames, n for the first of every n frames.

    Returns:
        The number of frames written.

    Raises:
        TypeError: if ``every`` is not an integer.
        ValueError: if ``every`` is smaller than 1.
        RuntimeError: if the program ffmpeg is missing or fails, or if no Chromium could be started.
    """
    epochs = run.epochs[:: check_count("every", every)].tolist()
    if not shutil.which("ffmpeg"):
        raise RuntimeError(
            "ffmpeg is needed to write videos and was not found: install the package `ffmpeg` "
            "(apt-get install ffmpeg, brew install ffmpeg or conda install ffmpeg) and call again"
        )
    pictures = ["-f", "image2pipe", "-framerate", str(fps), "-c:v", "png", "-i", "-"]
    command = ["ffmpeg", "-y", "-loglevel", "error", *pictures, "-pix_fmt", "yuv420p", str(path)]
    try:
        with studio(scale=1) as mount, subprocess.Popen(command, stdin=subprocess.PIPE) as ffmpeg:
            page, element = mount(Sandbox(runs=(run,)).page())
            page.add_style_tag(content=FILMED)
            box = element.bounding_box()
            clip = {"x": 0, "y": 0} | {side: box[side] // 2 * 2 for side in ("width", "height")}  # mp4 asks for even sizes
            for epoch in tqdm(epochs, desc=run.name):
                page.evaluate(TURNED, f"#sandbox=run:{run.name};epoch:{epoch}")
                ffmpeg.stdin.write(page.screenshot(clip=clip, full_page=True))
    except (Error, BrokenPipeError) as error:
        raise RuntimeError(f"the run could not be filmed: {error}") from error
    if ffmpeg.returncode:
        raise RuntimeError(f"ffmpeg failed with status {ffmpeg.returncode}: see above")
    return len(epochs)


def main(arguments: list[str] | None = None) -> None:
    """Export a run from the command line."""
    parser = argparse.ArgumentParser(prog="run.py video", description="Export a recorded run as a video.")
    parser.add_argument("run", metavar="RUN", help="its name")
    parser.add_argument("--output", type=Path, metavar="FILE", help="RUN.mp4 unless given")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only the first of every N frames")
    options = parser.parse_args(arguments)
    try:
        run = load_run(options.run)
        path = options.output or Path(f"{run.name}.mp4")
        count = write_video(run, path, every=options.every)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"run.py video: {error}")
    print(f"{path}: {count} frames, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
