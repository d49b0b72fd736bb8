"""Trains the digits model and writes `models/digits.onnx`.

    python -m venv .venv-train && .venv-train/bin/pip install torch==2.13.0 onnx onnxruntime scikit-learn numpy
    .venv-train/bin/python -m tools.train_digits            # about three minutes on two cores

Training data: the training part of scikit-learn's digits, distorted, and digits drawn by `digit_strokes`, as with a pen
on a screen. The held-out part is evaluated once, at the end. Seeds are fixed and algorithms deterministic: the same
versions on the same processor family give the same file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from tools.digit_strokes import random_digit
from tools.digits_data import PEN_RADIUS, SIZE, Floats, from_counts, load_split, rasterize

SEED = 0
EPOCHS = 40
BATCH = 128
COPIES = 4
STROKES_PER_DIGIT = 3000
STROKES_PER_EPOCH = 6000
LEARNING_RATE = 4e-3
LABEL_SMOOTHING = 0.02
OUTPUT = Path(__file__).resolve().parent.parent / "models" / "digits.onnx"
SIZE_LIMIT = 300_000

CHANNELS = (16, 16, "pool", 32, 32, "pool", 64)


class ConvNormRelu(nn.Module):  # type: ignore[misc]
    """relu(norm(conv3x3(x))), which keeps the image size; on export the norm becomes part of the convolution."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.norm(self.conv(x)))

    def folded(self) -> tuple[Floats, Floats]:
        """Return weight and bias of the convolution that equals norm(conv(x)) at inference."""
        scale = self.norm.weight.double() / torch.sqrt(self.norm.running_var.double() + self.norm.eps)
        weight = self.conv.weight.double() * scale[:, None, None, None]
        bias = self.norm.bias.double() - self.norm.running_mean.double() * scale
        return weight.float().detach().numpy(), bias.float().detach().numpy()


def build_network() -> nn.Sequential:
    """Return the network `[N, 1, 16, 16]` -> logits `[N, 10]`."""
    layers: list[nn.Module] = []
    channels, side = 1, SIZE
    for item in CHANNELS:
        if isinstance(item, str):
            layers.append(nn.MaxPool2d(2))
            side //= 2
        else:
            layers.append(ConvNormRelu(channels, item))
            channels = item
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(channels * side * side, 10))


def _uniform(n: int, low: float, high: float) -> Tensor:
    return torch.empty(n).uniform_(low, high)


def distort(images: Tensor) -> Tensor:
    """Distort each image at random: rotation, slant, scale, shift, stroke width, contrast, intensity and noise."""
    n = len(images)
    angle = torch.deg2rad(torch.randn(n) * 7)
    scale_x, scale_y = _uniform(n, 0.85, 1.2), _uniform(n, 0.92, 1.15)
    slant, shift = torch.randn(n) * 0.12, torch.randn(n, 2) * 0.06
    cos, sin = torch.cos(angle), torch.sin(angle)
    rows = [cos * scale_x, (slant - sin) * scale_y, shift[:, 0], sin * scale_x, cos * scale_y, shift[:, 1]]
    grid = functional.affine_grid(torch.stack(rows, 1).view(n, 2, 3), list(images.shape), align_corners=False)
    moved = functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    thicker, thinner = functional.max_pool2d(moved, 3, 1, 1), -functional.max_pool2d(-moved, 3, 1, 1)
    width = _uniform(n, -0.5, 0.6).view(n, 1, 1, 1)
    moved = moved + width.clamp(min=0) * (thicker - moved) - (-width).clamp(min=0) * (moved - thinner)
    steepness, threshold = _uniform(n, 4, 14).view(n, 1, 1, 1), _uniform(n, 0.3, 0.6).view(n, 1, 1, 1)
    crisp = torch.sigmoid(steepness * (moved - threshold)) - torch.sigmoid(-steepness * threshold)
    moved = torch.where(torch.rand(n, 1, 1, 1) < 0.5, crisp, moved)
    moved = moved * _uniform(n, 0.75, 1.1).view(n, 1, 1, 1) + torch.randn_like(moved) * 0.02
    return moved.clamp(0, 1)


def draw_strokes(per_digit: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return `per_digit` drawings of every digit, with various pen widths, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(10), per_digit)
    widths = PEN_RADIUS * np.exp(rng.normal(0, 0.2, len(labels)))
    images = [rasterize(random_digit(int(d), rng), float(w)) for d, w in zip(labels, widths, strict=True)]
    return torch.from_numpy(np.stack(images)), torch.from_numpy(labels)


def train(images: Tensor, labels: Tensor, drawn: Tensor, drawn_labels: Tensor) -> nn.Sequential:
    """Train for a fixed number of epochs; no choice depends on held-out images."""
    network = build_network()
    steps = -(-(len(images) * COPIES + STROKES_PER_EPOCH) // BATCH) * EPOCHS
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for epoch in range(EPOCHS):
        network.train()
        some = torch.randperm(len(drawn))[:STROKES_PER_EPOCH]
        x = torch.cat([distort(images.repeat(COPIES, 1, 1, 1)), drawn[some]])
        y = torch.cat([labels.repeat(COPIES), drawn_labels[some]])
        total = 0.0
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(x[batch]), y[batch], label_smoothing=LABEL_SMOOTHING)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch + 1:2}: loss {total / len(x):.4f}", flush=True)
    return network.eval()


def to_onnx(network: nn.Sequential) -> onnx.ModelProto:
    """Convert the network to ONNX: Conv, Relu, MaxPool, Flatten, Gemm, Softmax; `image` -> `probabilities`."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    value = "image"

    def add(op_type: str, inputs: dict[str, Floats] | None = None, **attributes: Any) -> None:
        nonlocal value
        name = f"{op_type.lower()}{sum(node.op_type == op_type for node in nodes) + 1}"
        parameters = {f"{name}.{key}": array for key, array in (inputs or {}).items()}
        weights.extend(numpy_helper.from_array(array, key) for key, array in parameters.items())
        output = "probabilities" if op_type == "Softmax" else f"{name}.out"
        nodes.append(helper.make_node(op_type, [value, *parameters], [output], name=name, **attributes))
        value = output

    for layer in network:
        if isinstance(layer, ConvNormRelu):
            weight, bias = layer.folded()
            add("Conv", {"weight": weight, "bias": bias}, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            add("Relu")
        elif isinstance(layer, nn.MaxPool2d):
            add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        elif isinstance(layer, nn.Flatten):
            add("Flatten", axis=1)
        elif isinstance(layer, nn.Linear):
            parameters = {"weight": layer.weight.detach().numpy(), "bias": layer.bias.detach().numpy()}
            add("Gemm", parameters, transB=1)
    add("Softmax", axis=1)
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, SIZE, SIZE])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        weights,
    )
    model = helper.make_model(
        graph, producer_name="pyruntime", ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    helper.set_model_props(
        model,
        {
            "labels": json.dumps([str(digit) for digit in range(10)]),
            "preprocessing": f"float32 [N, 1, {SIZE}, {SIZE}], ink 0..1 on paper 0, the digit's longer side filling "
            f"the image, centred, strokes {2 * PEN_RADIUS:g} pixels wide; see tools/digits_data.py",
            "data": "scikit-learn load_digits (UCI Optical Recognition of Handwritten Digits), its training part",
        },
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def accuracy(model: bytes, images: Floats, labels: npt.NDArray[np.int64]) -> float:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(None, {"image": images})
    return float((probabilities.argmax(1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)

    split = load_split()
    drawn, drawn_labels = draw_strokes(STROKES_PER_DIGIT, seed=SEED)
    network = train(
        torch.from_numpy(from_counts(split.train_counts)), torch.from_numpy(split.train_labels), drawn, drawn_labels
    )
    data = to_onnx(network).SerializeToString()
    if len(data) >= SIZE_LIMIT:
        raise SystemExit(f"the model has {len(data)} bytes, the limit is {SIZE_LIMIT}")
    arguments.output.write_bytes(data)
    unseen, unseen_labels = draw_strokes(200, seed=SEED + 1)
    print(f"held out: {accuracy(data, from_counts(split.heldout_counts), split.heldout_labels):.2%}")
    print(f"drawings not trained on: {accuracy(data, unseen.numpy(), unseen_labels.numpy()):.2%}")
    print(f"{arguments.output}: {len(data)} bytes")


if __name__ == "__main__":
    main()
