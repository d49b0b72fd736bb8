"""Classify a folder of images in several processes: python examples/dask_images.py MODEL.onnx FOLDER [WORKERS]

Each worker of the Dask cluster makes one session, on the GPU where `wgpu` is installed, and reads the images that it
is given. Needs `distributed` and `pillow`. The model takes one image of a fixed size, N x C x H x W, of values from 0
to 1, and its first output has a score for each class.
"""

import sys
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster, Worker, WorkerPlugin, get_worker
from PIL import Image

import pyruntime as ort


class Classifier(WorkerPlugin):
    """The session of a worker."""

    name = "classifier"

    def __init__(self, model: str) -> None:
        self.model = model

    def setup(self, worker: Worker) -> None:
        self.session = ort.InferenceSession(self.model)
        (self.image,) = self.session.get_inputs()

    def classify(self, path: Path) -> int:
        _, channels, height, width = self.image.shape
        with Image.open(path) as image:
            pixels = image.convert("L" if channels == 1 else "RGB").resize((width, height))
        values = np.asarray(pixels, np.float32).reshape(height, width, channels) / 255
        scores, *_ = self.session.run(None, {self.image.name: values.transpose(2, 0, 1)[np.newaxis]})
        return int(np.argmax(scores))


def classify(path: Path) -> int:
    """The class of an image, by the session of the worker that this runs on."""
    return get_worker().plugins[Classifier.name].classify(path)


def main(model: str, folder: str, workers: str = "2") -> None:
    paths = sorted(path.resolve() for path in Path(folder).iterdir() if path.suffix in {".jpg", ".jpeg", ".png"})
    with LocalCluster(n_workers=int(workers), threads_per_worker=1) as cluster, Client(cluster) as client:
        client.register_plugin(Classifier(str(Path(model).resolve())))
        for path, number in zip(paths, client.gather(client.map(classify, paths)), strict=True):
            print(path.name, number)


if __name__ == "__main__":
    main(*sys.argv[1:])
