"""Train the picture world's backbone from its own scenes: about 25 minutes of one core.

    python ci/train_world_backbone.py

Writes mmlib/world/backbone.safetensors and backbone.json. Under build/ a checkpoint is kept until
the end, so that a stopped run goes on where it was and ends with the same numbers.
"""

import argparse
import json
import platform
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.metrics import average_precision_score
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from mmlib.core.paths import PACKAGE, write_atomic
from mmlib.world import backbone
from mmlib.world.backbone import HEADS, SIZE, WIDTH, Backbone
from mmlib.world.drawing import draw
from mmlib.world.scenes import sample_scene, scene_key, split_seeds
from mmlib.world.schema import COLOURS, KINDS, Scene, Thing, box

HELD_OUT = 2000
MAP = 8  # cells a side of the last map
SUBSET = 300  # the held-out scenes that a test looks at again


def places_of(thing: Thing, mirrored: bool) -> np.ndarray:
    """The cells of the map, row by row, whose middle the thing's box covers; at least one."""
    left, top, right, bottom = box(thing)
    if mirrored:
        left, right = 1 - right, 1 - left
    middles = (np.arange(MAP) + 0.5) / MAP

    def covered(low: float, high: float) -> np.ndarray:
        inside = np.flatnonzero((middles > low) & (middles < high))
        return (
            inside if len(inside) else np.array([np.clip(int((low + high) / 2 * MAP), 0, MAP - 1)])
        )

    return (covered(top, bottom)[:, None] * MAP + covered(left, right)).ravel()


def words_of(thing: Thing) -> list[int]:
    """Columns of what is true of a thing: the LOCAL heads' words, then kind and colour together."""
    said = {"kind": thing.kind, "colour": thing.colour, "pattern": thing.pattern}
    said |= {"action": thing.action} if thing.action else {}
    columns, start = [], 0
    for name in backbone.LOCAL:
        if said.get(name) in HEADS[name]:
            columns.append(start + HEADS[name].index(said[name]))
        start += len(HEADS[name])
    return [*columns, start + KINDS.index(thing.kind) * len(COLOURS) + COLOURS.index(thing.colour)]


def varied(pixels: np.ndarray, mirrored: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pictures shifted by up to 4 pixels, some of them mirrored."""
    result = np.empty_like(pixels)
    padded = np.pad(pixels, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="edge")
    for i, (row, column) in enumerate(rng.integers(0, 9, (len(pixels), 2))):
        result[i] = padded[i, row : row + SIZE, column : column + SIZE]
    result[mirrored] = result[mirrored, :, ::-1]
    return result


def loss_of(
    network: Backbone, pairs: nn.Linear, pixels: np.ndarray, truth: dict[str, torch.Tensor]
) -> torch.Tensor:
    """What each place shows, what the picture shows, its setting and style.

    Colours are not asked of black-and-white pictures.
    """
    activations = network.map(backbone.to_input(pixels))
    every_place = torch.cat(
        [network.places(activations), pairs(activations.flatten(2).transpose(1, 2))], 2
    )
    asked = truth["asked"]
    cost = F.binary_cross_entropy_with_logits
    total = 4 * (cost(every_place, truth["places"], reduction="none").mean(1) * asked).sum(1).mean()
    seen, shown = every_place.amax(1), truth["places"].amax(1)
    total = total + (cost(seen, shown, reduction="none") * asked).sum(1).mean()
    logits = network.logits(activations)
    for name in backbone.OVERALL:
        total = total + F.cross_entropy(logits[name], truth[name].argmax(1))
    return total


class Truth:
    """The targets of a batch, from the scenes."""

    def __init__(self, scenes: list[Scene]):
        whole = backbone.targets(scenes)
        self.whole = {name: torch.tensor(whole[name]) for name in backbone.OVERALL}
        self.cells = [[self.of_things(s, mirrored) for mirrored in (False, True)] for s in scenes]
        self.words = sum(len(HEADS[name]) for name in backbone.LOCAL) + len(KINDS) * len(COLOURS)
        about_colour = np.zeros(self.words, bool)
        about_colour[len(KINDS) : len(KINDS) + len(COLOURS)] = True
        about_colour[-len(KINDS) * len(COLOURS) :] = True
        grey = np.array([scene.style == "black and white" for scene in scenes])
        self.asked = torch.tensor(~(grey[:, None] & about_colour)).float()

    @staticmethod
    def of_things(scene: Scene, mirrored: bool) -> np.ndarray:
        """(k, 2) cells and columns that are true of a scene."""
        pairs = [np.meshgrid(places_of(t, mirrored), words_of(t)) for t in scene.things]
        return np.concatenate([np.stack(p, -1).reshape(-1, 2) for p in pairs]).astype(np.int16)

    def batch(self, rows: np.ndarray, mirrored: np.ndarray) -> dict[str, torch.Tensor]:
        places = np.zeros((len(rows), MAP * MAP, self.words), np.float32)
        for i, (row, flip) in enumerate(zip(rows, mirrored, strict=True)):
            cells, columns = self.cells[row][int(flip)].T
            places[i, cells, columns] = 1
        whole = {name: real[rows].float() for name, real in self.whole.items()}
        return whole | {"places": torch.from_numpy(places), "asked": self.asked[rows]}


def train(args: argparse.Namespace, pixels: np.ndarray, scenes: list[Scene]) -> Backbone:
    truth = Truth(scenes)
    torch.manual_seed(args.seed)
    network = Backbone(norm=True).to(memory_format=torch.channels_last)
    pairs = nn.Linear(WIDTH, len(KINDS) * len(COLOURS))  # helps training, is not kept
    for layer in (network.local, pairs):
        nn.init.constant_(layer.bias, -4.6)  # most things are not there
    parameters = [*network.parameters(), *pairs.parameters()]
    optimiser = torch.optim.AdamW(parameters, args.rate, weight_decay=0.01)
    steps = len(scenes) // args.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, args.rate, steps * args.epochs)
    parts: dict[str, Any] = {
        "network": network, "pairs": pairs, "optimiser": optimiser, "schedule": schedule
    }  # fmt: skip
    first = 0
    if args.checkpoint.exists():
        saved = torch.load(args.checkpoint, weights_only=True)
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
            rows = np.sort(rows)
            mirrored = rng.random(len(rows)) < 0.5
            shown = varied(pixels[rows], mirrored, rng)
            loss = loss_of(network, pairs, shown, truth.batch(rows, mirrored))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            running = 0.98 * running + 0.02 * loss.item() if running else loss.item()
            progress.set_postfix(loss=f"{running:.2f}")
        state = {name: part.state_dict() for name, part in parts.items()} | {"epoch": epoch + 1}
        write_atomic(args.checkpoint, partial(torch.save, state))
    return network.folded()


@torch.inference_mode()
def scores(images: Sequence[Image.Image]) -> dict[str, np.ndarray]:
    """Every head's (n, words) float32 probabilities of n >= 1 pictures, by the names in HEADS."""
    network = backbone.load()
    parts = []
    for start in range(0, len(images), 64):
        pixels = backbone.to_pixels(images[start : start + 64])
        parts.append(network.probabilities(network.map(backbone.to_input(pixels))))
    return {name: np.concatenate([part[name] for part in parts]) for name in HEADS}


def accuracy(scores: dict[str, np.ndarray], scenes: Sequence[Scene]) -> dict[str, float]:
    """How well the probabilities of `scores` match the scenes, 0 to 1.

    Settings and styles: share of scenes where the likeliest is right. The other heads: average
    precision, averaged over the words that occur. Colours count in pictures that show them, so
    not in black and white.
    """
    truth = backbone.targets(scenes)
    result: dict[str, float] = {}
    in_colour = np.array([scene.style != "black and white" for scene in scenes])
    for name, likely in scores.items():
        real = truth[name]
        if name == "colour":
            likely, real = likely[in_colour], real[in_colour]
        if name in backbone.OVERALL:
            result[name] = float((likely.argmax(1) == real.argmax(1)).mean())
        else:
            occurs = real.any(0)
            result[name] = float(average_precision_score(real[:, occurs], likely[:, occurs]))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=20000)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=2.5e-3)
    parser.add_argument("--seed", type=int, default=0)
    build = PACKAGE.parent / "build" / "world_backbone.pt"
    parser.add_argument("--checkpoint", type=Path, default=build, help="of these settings")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the same sums whatever the machine
    started = time.monotonic()
    scenes = [
        sample_scene(seed) for seed in tqdm(split_seeds("backbone", args.scenes), desc="scenes")
    ]
    seen = {scene_key(scene) for scene in scenes}
    others = [sample_scene(seed) for seed in split_seeds("backbone", HELD_OUT, seed=1)]
    held_out = [scene for scene in others if scene_key(scene) not in seen]

    pixels = np.stack([np.asarray(draw(scene, SIZE)) for scene in tqdm(scenes, desc="drawing")])
    network = train(args, pixels, scenes)
    with torch.inference_mode():  # region features get unit overall deviation
        regions = network.regions(network.map(backbone.to_input(pixels[:1000])))
    network.deviation = regions.std().clone()
    half = {name: value.half().contiguous() for name, value in network.state_dict().items()}
    write_atomic(backbone.WEIGHTS, lambda path: save_file(half, path))
    backbone.WEIGHTS.chmod(0o644)
    args.checkpoint.unlink()
    backbone.load.cache_clear()
    likely = scores([draw(scene, SIZE) for scene in tqdm(held_out, desc="held out")])
    value, rng = accuracy(likely, held_out), np.random.default_rng(args.seed)
    subsets = []  # the deviation between random subsets
    for _ in range(200):
        rows = rng.choice(len(held_out), SUBSET, replace=False)
        of_rows = {name: probabilities[rows] for name, probabilities in likely.items()}
        subsets.append(accuracy(of_rows, [held_out[i] for i in rows]))
    spread = {name: float(np.std([accuracies[name] for accuracies in subsets])) for name in HEADS}
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
                "metric": "accuracy" if name in backbone.OVERALL else "mean average precision",
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
