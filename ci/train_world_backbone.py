"""Train the picture world's backbone from its own scenes: about 25 minutes of one core.

    python ci/train_world_backbone.py

Writes mmlib/world/backbone.safetensors and backbone.json. Drawn scenes and a checkpoint an epoch are
kept under build/, so that a run that was stopped goes on where it was and ends with the same numbers.
"""

import argparse
import hashlib
import json
import platform
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from mmlib.paths import PACKAGE, write_atomic
from mmlib.world import backbone
from mmlib.world.backbone import HEADS, SIZE, WIDTH, Backbone
from mmlib.world.drawing import draw
from mmlib.world.scenes import sample_scene, scene_key, split_seeds
from mmlib.world.schema import COLOURS, KINDS, Scene

HELD_OUT = 2000
SUBSET = 300  # the held-out scenes that a test looks at again


def drawn(scenes: list[Scene], folder: Path, name: str) -> np.ndarray:
    """(n, 128, 128, 3) uint8 pictures, drawn once and kept; a half-drawn file is never taken."""
    content = hashlib.sha256("".join(map(repr, scenes)).encode())
    for source in (
        "drawing",
        "pen",
        "backdrops",
        "figures/people",
        "figures/animals",
        "figures/inanimate",
    ):
        content.update((PACKAGE / "world" / f"{source}.py").read_bytes())
    path = folder / f"{name}-{len(scenes)}-{content.hexdigest()[:12]}.npy"

    def fill(target: Path) -> None:
        shape = (len(scenes), SIZE, SIZE, 3)
        pixels = np.lib.format.open_memmap(target, "w+", np.uint8, shape)
        for i, scene in enumerate(tqdm(scenes, desc=f"drawing {name}")):
            pixels[i] = draw(scene, SIZE)
        pixels.flush()

    if not path.exists():
        write_atomic(path, fill)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def pair_targets(scenes: list[Scene]) -> np.ndarray:
    """(n, kinds * colours) bool: which kinds are there in which colours."""
    truth = np.zeros((len(scenes), len(KINDS), len(COLOURS)), bool)
    for i, scene in enumerate(scenes):
        for thing in scene.things:
            truth[i, KINDS.index(thing.kind), COLOURS.index(thing.colour)] = True
    return truth.reshape(len(scenes), -1)


def varied(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pictures shifted by up to 6 pixels, half of them mirrored: no target depends on either."""
    result = np.empty_like(pixels)
    padded = np.pad(pixels, ((0, 0), (6, 6), (6, 6), (0, 0)), mode="edge")
    for i, (row, column) in enumerate(rng.integers(0, 13, (len(pixels), 2))):
        result[i] = padded[i, row : row + SIZE, column : column + SIZE]
    mirrored = rng.random(len(pixels)) < 0.5
    result[mirrored] = result[mirrored, :, ::-1]
    return result


def loss_of(
    network: Backbone, pairs: nn.Linear, pixels: np.ndarray, truth: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Sum of the heads' losses; colours are not asked of black-and-white pictures."""
    activations = network.map(backbone.to_input(pixels))
    logits = network.logits(activations) | {"pair": pairs(network.summary(activations))}
    shows_colour = truth["in colour"]
    total = torch.zeros(())
    for name, found in logits.items():
        real = truth[name]
        if name in backbone.EXCLUSIVE:
            total = total + F.cross_entropy(found, real.argmax(1))
            continue
        each = F.binary_cross_entropy_with_logits(found, real, reduction="none").sum(1)
        total = total + (each * shows_colour if name in ("colour", "pair") else each).mean()
    return total


def train(args: argparse.Namespace, pixels: np.ndarray, scenes: list[Scene]) -> Backbone:
    truth = {name: torch.tensor(real).float() for name, real in backbone.targets(scenes).items()}
    truth["pair"] = torch.tensor(pair_targets(scenes)).float()
    truth["in colour"] = torch.tensor([s.style != "black and white" for s in scenes]).float()
    torch.manual_seed(args.seed)
    network = Backbone(norm=True).to(memory_format=torch.channels_last)
    pairs = nn.Linear(2 * WIDTH, len(KINDS) * len(COLOURS))  # helps training, is not kept
    parameters = [*network.parameters(), *pairs.parameters()]
    optimiser = torch.optim.AdamW(parameters, args.rate, weight_decay=0.01)
    steps = len(scenes) // args.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, args.rate, steps * args.epochs)
    parts = {"network": network, "pairs": pairs, "optimiser": optimiser, "schedule": schedule}
    checkpoint = args.build / f"checkpoint-{args.scenes}-{args.epochs}-{args.seed}.pt"
    first = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        first = saved.pop("epoch")
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    for epoch in range(first, args.epochs):
        rng = np.random.default_rng([args.seed, epoch])
        order = rng.permutation(len(scenes))[: steps * args.batch].reshape(steps, args.batch)
        network.train()
        progress = tqdm(order, desc=f"epoch {epoch + 1} of {args.epochs}")
        running = 0.0
        for rows in progress:
            rows = np.sort(rows)  # kinder to the disk
            real = {name: every[rows] for name, every in truth.items()}
            loss = loss_of(network, pairs, varied(pixels[rows], rng), real)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            running = 0.98 * running + 0.02 * loss.item() if running else loss.item()
            progress.set_postfix(loss=f"{running:.2f}")
        state = {name: part.state_dict() for name, part in parts.items()}
        write_atomic(checkpoint, lambda path: torch.save({**state, "epoch": epoch + 1}, path))
    return network.folded()


def set_deviation(network: Backbone, pixels: np.ndarray) -> None:
    """Scale region features to unit overall deviation on the training pictures."""
    with torch.inference_mode():
        regions = network.regions(network.map(backbone.to_input(pixels)))
    network.deviation = regions.std().clone()


def save_weights(network: Backbone) -> None:
    half = {name: value.half().contiguous() for name, value in network.state_dict().items()}
    write_atomic(backbone.WEIGHTS, lambda path: save_file(half, path))
    backbone.load.cache_clear()


def subset_deviation(found: dict, scenes: list[Scene], seed: int) -> dict[str, float]:
    """The deviation of each accuracy between random subsets of SUBSET held-out scenes."""
    rng = np.random.default_rng(seed)
    drawn_values = []
    for _ in range(200):
        rows = rng.choice(len(scenes), SUBSET, replace=False)
        part = {name: likely[rows] for name, likely in found.items()}
        drawn_values.append(backbone.accuracy(part, [scenes[i] for i in rows]))
    return {name: float(np.std([v[name] for v in drawn_values])) for name in HEADS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=24000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--build", type=Path, default=PACKAGE.parent / "build" / "world_backbone")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the same sums whatever the machine
    started = time.monotonic()
    scenes = [
        sample_scene(seed) for seed in tqdm(split_seeds("backbone", args.scenes), desc="scenes")
    ]
    seen = {scene_key(scene) for scene in scenes}
    others = [sample_scene(seed) for seed in split_seeds("backbone", HELD_OUT, seed=1)]
    held_out = [scene for scene in others if scene_key(scene) not in seen]

    pixels = drawn(scenes, args.build, "train")
    network = train(args, pixels, scenes)
    set_deviation(network, np.array(pixels[:1000]))
    save_weights(network)
    found = backbone.scores([draw(scene, SIZE) for scene in tqdm(held_out, desc="held out")])
    value, spread = backbone.accuracy(found, held_out), subset_deviation(found, held_out, args.seed)
    result = {
        "made_by": "ci/train_world_backbone.py",
        "split": "backbone",
        "training_scenes": args.scenes,
        "held_out_scenes": len(held_out),
        "held_out_seeds": [held_out[0].seed, held_out[-1].seed],
        "epochs": args.epochs,
        "steps": args.epochs * (args.scenes // args.batch),
        "batch": args.batch,
        "rate": args.rate,
        "seed": args.seed,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "minutes": round((time.monotonic() - started) / 60, 1),
        "accuracy": {
            name: {
                "metric": "accuracy" if name in backbone.EXCLUSIVE else "mean average precision",
                "value": round(value[name], 4),
                f"deviation_of_{SUBSET}": round(spread[name], 4),
            }
            for name in HEADS
        },
    }
    text = json.dumps(result, indent=2) + "\n"
    write_atomic(backbone.RECORD, lambda path: path.write_text(text, encoding="utf-8"))
    print(text)


if __name__ == "__main__":
    main()
