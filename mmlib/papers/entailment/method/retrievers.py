"""Three small image-text retrievers, one for each loss of the families that the paper retrains.

`DualEncoder` (CLIP-like), `HardestTriplet` (VSE-like, with UNITER's loss) and `AlignFuse`
(ALBEF-like) have a `loss` of a batch and `rank` all images with all texts; a pretrained model with
both fits in their place. Each loss takes A, which pairs of a batch belong together, golden or
entailed: these are no negatives (Sec. 4.2).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.features import encoders
from mmlib.features.encoders import BLOCK, CrossEncoder, DualEncoder, Shape, Sizes

if TYPE_CHECKING:
    from mmlib.papers.entailment.run.systems import RetrieverTraining

MAX_WORDS = 40  # of a caption


def hard_negatives(
    logits: Tensor, same: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """ALBEF-like: a wrong text for each image and a wrong image for each text of a batch (B,).

    Drawn in proportion to the softmax of the similarities, entailed pairs never. A row in which
    everything is entailed has no negative and gets -1.
    """

    def draw(scores: Tensor, out: Tensor) -> Tensor:
        weights = scores.masked_fill(out, -torch.inf).softmax(dim=1)
        empty = out.all(dim=1)
        weights = torch.where(empty[:, None], 1.0, weights)
        drawn = torch.multinomial(weights.cpu(), 1, generator=generator)[:, 0].to(scores.device)
        return drawn.masked_fill(empty, -1)

    scores = logits.detach()
    return draw(scores, same), draw(scores.T, same.T)


def hardest_triplet(scores: Tensor, same: Tensor, margin: float = 0.2) -> Tensor:
    """VSE-like, as UNITER: hinge on the hardest wrong text and image of a batch, entailed ones out.

    scores (B, B): image i with text j. Mean over rows and columns that have a negative.
    """
    golden = scores.diagonal()
    wrong = scores.masked_fill(same, -torch.inf)
    hinges = torch.cat([(margin - golden + wrong.amax(dim=side)).clamp_min(0) for side in (1, 0)])
    exists = torch.cat([torch.isfinite(wrong.amax(dim=side)) for side in (1, 0)])
    return torch.where(exists, hinges, 0).sum() / exists.sum().clamp_min(1)


class HardestTriplet(DualEncoder):
    """Two encoders and a hinge on the hardest wrong text and image of a batch (VSE++).

    In UNITER's place: its loss without its single stream, which would have to score every pair.
    """

    def __init__(self, sizes: Sizes, settings: Shape, margin: float = 0.2):
        super().__init__(sizes, settings, alone=True)
        self.margin = margin

    def loss(self, images: Tensor, ids: Tensor, lengths: Tensor, same: Tensor) -> Tensor:
        """The hinge on cosines; entailed pairs are no negatives."""
        _, left = self.image_states(images)
        *_, right = self.text_states(ids, lengths)
        return hardest_triplet(left @ right.T, same, self.margin)


class AlignFuse(DualEncoder):
    """Contrast first, then fuse: ITC, and ITM on hard negatives; ITM re-ranks the best (ALBEF).

    top: how many of ITC's best texts of an image, and images of a text, are re-ranked.
    """

    def __init__(
        self, sizes: Sizes, settings: Shape, top: tuple[int, int] = (16, 16), seed: int = 0
    ):
        super().__init__(sizes, settings)
        self.cross = CrossEncoder(settings)
        encoders.only_first(self.cross.layers[-1])
        self.matched = nn.Linear(settings.width, 2)
        self.top = top
        self.generator = torch.Generator().manual_seed(seed)

    def match(self, words: Tensor, mask: Tensor, image: Tensor) -> Tensor:
        """States of words and of images, pair by pair -> logits (B, 2) of ITM."""
        return self.matched(self.cross(words, mask.bool(), image)[:, 0])

    def loss(self, images: Tensor, ids: Tensor, lengths: Tensor, same: Tensor) -> Tensor:
        """ITC plus ITM: each pair, each image with a wrong text, each text with a wrong image."""
        states, left = self.image_states(images)
        words, mask, right = self.text_states(ids, lengths)
        scores = self.similarities(left, right)
        wrong_text, wrong_image = hard_negatives(scores, same, self.generator)
        rows = torch.arange(len(images), device=images.device)
        has_text, has_image = wrong_text >= 0, wrong_image >= 0
        text = torch.cat([rows, wrong_text[has_text], rows[has_image]])
        image = torch.cat([rows, rows[has_text], wrong_image[has_image]])
        labels = torch.zeros_like(text)
        labels[: len(rows)] = 1
        logits = self.match(words[text], mask[text], states[image])
        return encoders.in_batch_softmax(scores, same) + F.cross_entropy(logits, labels)

    @torch.no_grad()
    def rank(self, images: Tensor, ids: Tensor, lengths: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Scores by image and by text; the `top` of each, re-ranked by ITM, stand above others."""
        self.eval()
        image_blocks = [self.image_states(block) for block in images.split(BLOCK)]
        captions = zip(ids.split(BLOCK), lengths.split(BLOCK), strict=True)
        text_blocks = [self.text_states(*block) for block in captions]
        states, left = map(torch.cat, zip(*image_blocks, strict=True))
        words, mask, right = map(torch.cat, zip(*text_blocks, strict=True))

        long = lengths.cpu().numpy()

        def matched(pairs: np.ndarray) -> np.ndarray:
            # ITM's probability of pairs (n, 2), in blocks of texts of about one length.
            chances = np.empty(len(pairs), dtype=np.float32)
            order = np.argsort(long[pairs[:, 1]], kind="stable")
            for rows in np.split(order, range(BLOCK, len(order), BLOCK)):
                image, text = torch.from_numpy(pairs[rows]).to(lengths.device).T
                shown = slice(int(long[pairs[rows[-1], 1]]) + 1)
                logits = self.match(words[text, shown], mask[text, shown], states[image])
                chances[rows] = logits.softmax(dim=1)[:, 1].cpu().numpy()
            return chances

        return reranked((left @ right.T).cpu().numpy(), self.top, matched)


def reranked(
    scores: np.ndarray, top: tuple[int, int], score: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Scores (images, texts) to rank texts by and images by, with the `top` of each query anew.

    top: texts of each image, and images of each text. score: pairs (n, 2) of image and text ->
    probability (n,). 2 is added, so that they stand above the rest, whose `scores` are at most 1.
    """
    rows, columns = (np.arange(size)[:, None] for size in scores.shape)
    best_texts, best_images = np.zeros((2, *scores.shape), dtype=bool)
    best_texts[rows, np.argsort(-scores, axis=1, kind="stable")[:, : top[0]]] = True
    best_images[np.argsort(-scores.T, axis=1, kind="stable")[:, : top[1]], columns] = True
    matched = np.zeros_like(scores)
    matched[best_texts | best_images] = 2 + score(np.argwhere(best_texts | best_images))
    return np.where(best_texts, matched, scores), np.where(best_images, matched, scores)


def build(family: str, plan: "RetrieverTraining", images: np.ndarray, vocabulary: int) -> Any:
    """A retriever of a family with fresh weights. images: the image table."""
    _, regions, width = images.shape
    sizes = Sizes(vocabulary, width, regions, words=MAX_WORDS, space=plan.space)
    if family == "align":
        return AlignFuse(sizes, plan.transformers, (plan.top_texts, plan.top_images))
    if family == "triplet":
        return HardestTriplet(sizes, plan.transformers)
    return DualEncoder(sizes, plan.transformers, alone=True)
