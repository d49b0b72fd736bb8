"""Trains the super-resolution model and writes `models/enlarge3.onnx`: three times as many pixels in each direction.

    python -m venv .venv-train && .venv-train/bin/pip install torch==2.13.0 onnx onnxruntime scikit-image==0.26.0 numpy
    .venv-train/bin/python -m tools.train_super_resolution     # five minutes on an H100; without CUDA on the CPU, hours

`picture`, float32 `[N, 3, H, W]`, RGB in 0..1, any height and width -> `enlarged`, `[N, 3, 3H, 3W]` in 0..1: bicubic
interpolation, plus a correction that convolutions compute from the small picture (as in ESPCN, Shi et al. 2016: all
convolutions run at the small size, and DepthToSpace forms the large picture).

Training data: photographs in scikit-image's wheel (TRAINED_ON: CC0 or in the public domain, see the documentation of
`skimage.data`) and random shapes ("dead leaves", Lee et al. 2001), downscaled by bicubic interpolation. HELD_OUT is
evaluated once, at the end. Seeds are fixed: the same versions on the same processor give the same model.

Results of models/enlarge3.onnx (torch 2.11, PSNR of the luma, onnxruntime): astronaut 31.19 dB, bicubic 28.68 dB;
chelsea 33.55 dB, bicubic 32.87 dB.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import skimage.data
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional

SEED = 0
SCALE = 3
CHANNELS = 32
BLOCKS = 4
PATCH = 32
BATCH = 32
STEPS = 24_000
LEARNING_RATE = 8e-4
LEAVES = 24
LEAF_SIDE = 384
OUTPUT = Path(__file__).resolve().parent.parent / "models" / "enlarge3.onnx"
SIZE_LIMIT = 2_000_000

TRAINED_ON = (
    "camera", "coffee", "rocket", "brick", "grass", "gravel", "coins", "hubble_deep_field", "retina",
    "immunohistochemistry", "text", "moon",
)  # fmt: skip
HELD_OUT = ("astronaut", "chelsea")

Floats = npt.NDArray[np.float32]


class Block(nn.Module):  # type: ignore[misc]
    """x + conv(relu(conv(x)))."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(functional.relu(self.first(x)))


class Enlarge(nn.Module):  # type: ignore[misc]
    """`[N, 3, H, W]` -> `[N, 3, 3H, 3W]`, not clipped to 0..1."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.body = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.tail = nn.Conv2d(CHANNELS, 3 * SCALE**2, 3, padding=1)
        nn.init.zeros_(self.tail.bias)
        with torch.no_grad():
            self.tail.weight.mul_(0.1)
            for block in self.body:
                block.second.weight.mul_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.head(x))
        for block in self.body:
            y = block(y)
        return resize(x, SCALE) + functional.pixel_shuffle(self.tail(y), SCALE)


def resize(x: Tensor, factor: float) -> Tensor:
    """Resize by bicubic interpolation (a = -0.5), antialiased when downscaling."""
    return functional.interpolate(x, scale_factor=factor, mode="bicubic", antialias=True)


def photograph(name: str) -> Tensor:
    """Load a photograph, `[1, 3, H, W]` in 0..1."""
    pixels = np.asarray(getattr(skimage.data, name)())
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, 2)
    return torch.from_numpy(pixels[..., :3].astype(np.float32) / 255).permute(2, 0, 1)[None]


def leaves(rng: np.random.Generator, palette: Floats) -> Tensor:
    """Draw overlapping discs, bars and boxes in colors of photographs, at twice the size, and downscale them."""
    side = 2 * LEAF_SIDE
    picture = np.broadcast_to(palette[rng.integers(len(palette))][:, None, None], (3, side, side)).copy()
    for _ in range(700):
        radius = float(np.clip(4 / rng.random() ** 0.6, 4, side / 3))
        kind, (cx, cy), angle = rng.integers(3), rng.random(2) * side, rng.random() * math.tau
        top, bottom = (int(np.clip(cy + s * 3.1 * radius, 0, side)) for s in (-1, 1))
        left, right = (int(np.clip(cx + s * 3.1 * radius, 0, side)) for s in (-1, 1))
        y, x = np.mgrid[top:bottom, left:right].astype(np.float32)
        u = (x - cx) * math.cos(angle) + (y - cy) * math.sin(angle)
        v = (y - cy) * math.cos(angle) - (x - cx) * math.sin(angle)
        if kind == 0:
            inside = u * u + v * v < radius * radius
        elif kind == 1:
            inside = (np.abs(u) < radius) & (np.abs(v) < radius * rng.uniform(0.3, 1))
        else:
            inside = (np.abs(u) < 3 * radius) & (np.abs(v) < max(1.5, radius * 0.12))
        slope = 0.4 if rng.random() < 0.3 else 0.0  # slope of a brightness gradient
        colour = palette[rng.integers(len(palette))][:, None] * (1 + slope * u[inside] / (3 * radius))
        picture[:, top:bottom, left:right][:, inside] = colour
    return resize(torch.from_numpy(picture.clip(0, 1))[None], 0.5).clamp(0, 1)


def pairs() -> list[tuple[Tensor, Tensor]]:
    """Return (small, large) pictures for patches: each photograph at several sizes, and the random shapes."""
    rng = np.random.default_rng(SEED)
    large = []
    for name in TRAINED_ON:
        whole = photograph(name)
        factors = (1.0, 0.75, 0.5) if max(whole.shape) < 800 else (0.75, 0.5, 0.35)
        large += [whole if factor == 1 else resize(whole, factor).clamp(0, 1) for factor in factors]
    colours = torch.cat([picture.flatten(2)[0] for picture in large], 1).T.numpy()
    palette = colours[rng.permutation(len(colours))[:4096]]
    large += [leaves(rng, palette) for _ in range(LEAVES)]
    enough = [p for p in large if min(p.shape[2:]) >= SCALE * PATCH]
    cropped = [p[..., : p.shape[2] // SCALE * SCALE, : p.shape[3] // SCALE * SCALE] for p in enough]
    return [(resize(p, 1 / SCALE).clamp(0, 1).mul(255).round().div(255), p) for p in cropped]


def batch(pictures: list[tuple[Tensor, Tensor]], weights: Floats, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return random patches: rotated, mirrored, with permuted color channels."""
    small, large = [], []
    for index in rng.choice(len(pictures), BATCH, p=weights):
        low, high = pictures[index]
        top, left = rng.integers(low.shape[2] - PATCH + 1), rng.integers(low.shape[3] - PATCH + 1)
        a = low[0, :, top : top + PATCH, left : left + PATCH]
        b = high[0, :, top * SCALE : (top + PATCH) * SCALE, left * SCALE : (left + PATCH) * SCALE]
        order = rng.permutation(3).tolist()
        turns, mirror = int(rng.integers(4)), bool(rng.integers(2))
        a, b = (torch.rot90(t[order], turns, (1, 2)) for t in (a, b))
        small.append(a.flip(2) if mirror else a)
        large.append(b.flip(2) if mirror else b)
    return torch.stack(small), torch.stack(large)


def train(steps: int, device: str) -> Enlarge:
    """Train for a fixed number of steps; no choice depends on the held-out photographs."""
    pictures = [(low.to(device), high.to(device)) for low, high in pairs()]
    areas = np.array([low.shape[2] * low.shape[3] for low, _ in pictures], np.float64) ** 0.5
    rng = np.random.default_rng(SEED + 1)
    network = Enlarge()
    network.to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.05)
    total, since = torch.zeros((), device=device), time.perf_counter()
    for step in range(1, steps + 1):
        small, large = batch(pictures, areas / areas.sum(), rng)
        optimizer.zero_grad()
        loss = functional.l1_loss(network(small), large)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        total = total + loss.detach()
        if step % 1000 == 0:
            print(f"step {step:5}: loss {float(total) / 1000:.5f}, {time.perf_counter() - since:.0f} s", flush=True)
            total = torch.zeros((), device=device)
    network.cpu().eval()
    return network


def to_onnx(network: Enlarge) -> onnx.ModelProto:
    """Convert the network to ONNX: Conv, Relu, Add, DepthToSpace, Resize, Clip; `picture` -> `enlarged`."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def add(op_type: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output

    def constant(name: str, value: npt.NDArray[Any]) -> str:
        weights.append(numpy_helper.from_array(value, name))
        return name

    def conv(layer: nn.Conv2d, x: str, name: str) -> str:
        inputs = [x, constant(f"{name}.weight", layer.weight.detach().numpy()),
                  constant(f"{name}.bias", layer.bias.detach().numpy())]  # fmt: skip
        return add("Conv", inputs, name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    x = add("Relu", [conv(network.head, "picture", "head")], "head.relu")
    for number, block in enumerate(network.body, 1):
        y = add("Relu", [conv(block.first, x, f"block{number}.first")], f"block{number}.relu")
        x = add("Add", [conv(block.second, y, f"block{number}.second"), x], f"block{number}")
    # pixel_shuffle's order of channels is DepthToSpace's mode CRD.
    detail = add("DepthToSpace", [conv(network.tail, x, "tail")], "detail", blocksize=SCALE, mode="CRD")
    scales = constant("scales", np.array([1, 1, SCALE, SCALE], np.float32))
    smooth = add("Resize", ["picture", "", scales], "bicubic", mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1)
    limits = [constant("black", np.array(0, np.float32)), constant("white", np.array(1, np.float32))]
    add("Clip", [add("Add", [smooth, detail], "sum"), *limits], "enlarged")
    graph = helper.make_graph(
        nodes,
        "enlarge3",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["N", 3, "height", "width"])],
        [helper.make_tensor_value_info("enlarged", TensorProto.FLOAT, ["N", 3, "height3", "width3"])],
        weights,
    )
    model = helper.make_model(
        graph, producer_name="pyruntime", ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    helper.set_model_props(
        model,
        {
            "preprocessing": "float32 [N, 3, H, W], RGB in 0..1",
            "data": f"scikit-image's {', '.join(TRAINED_ON)} (CC0 or public domain); generated shapes",
        },
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def luma(picture: Floats) -> npt.NDArray[np.float64]:
    """Return Y of BT.601 in 0..255, without a border of SCALE pixels, as is usual in papers on super-resolution."""
    r, g, b = picture[0].astype(np.float64)
    y = np.round(16 + 65.481 * r + 128.553 * g + 24.966 * b)
    return np.asarray(y[SCALE:-SCALE, SCALE:-SCALE])


def psnr(picture: Floats, truth: Floats) -> float:
    """Return the peak signal-to-noise ratio in dB."""
    return float(10 * np.log10(255**2 / np.mean((luma(picture) - luma(truth)) ** 2)))


def measure(model: bytes) -> list[str]:
    """Return a line for each held-out photograph: PSNR of bicubic interpolation and of the model, by onnxruntime."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    lines = []
    for name in HELD_OUT:
        truth = photograph(name)
        truth = truth[..., : truth.shape[2] // SCALE * SCALE, : truth.shape[3] // SCALE * SCALE]
        small = resize(truth, 1 / SCALE).clamp(0, 1).mul(255).round().div(255)
        (enlarged,) = session.run(None, {"picture": small.numpy()})
        bicubic = resize(small, SCALE).clamp(0, 1).numpy()
        before, after = psnr(bicubic, truth.numpy()), psnr(enlarged, truth.numpy())
        lines.append(f"{name}: bicubic {before:.2f} dB, model {after:.2f} dB ({after - before:+.2f})")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)

    data = to_onnx(train(arguments.steps, arguments.device)).SerializeToString()
    if len(data) >= SIZE_LIMIT:
        raise SystemExit(f"the model has {len(data)} bytes, the limit is {SIZE_LIMIT}")
    arguments.output.write_bytes(data)
    print("\n".join(measure(data)))
    print(f"{arguments.output}: {len(data)} bytes")


if __name__ == "__main__":
    main()
