"""The three losses of paper 03 (Section 3.4); how they are summed: `method.Matcher.loss`."""

from torch import Tensor
from torch.nn import functional as F


def hardest(similarity: Tensor, same: Tensor, margin: float, hard: bool = True) -> Tensor:
    """L_HARD (eqs. 8, 9), a mean: hinge on the hardest negative caption and negative image.

    similarity (N, N), images by captions, pairs on the diagonal. same (N, N): pairs of the same
    image, which are no negatives. hard: False for the mean over all negatives instead.
    """
    positive, total = similarity.diag(), similarity.new_zeros(())
    for scores, negatives in ((similarity, ~same), (similarity.T, ~same.T)):
        hinge = (margin + scores - positive[:, None]).clamp(min=0) * negatives
        mean = hinge.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)
        total = total + (hinge.amax(dim=1) if hard else mean).mean()
    return total


def contrastive(similarity: Tensor, positive: Tensor, temperature: float) -> Tensor:
    """L_CON (eqs. 10, 11) between N images and M concepts (captions and entities), both ways.

    similarity (N, M), positive (N, M): the concept is in the image. As in the authors' code each
    positive stands alone against the anchor's negatives; printed, its own term is missing from
    the denominator, and the loss has no lower bound.
    """

    def side(logits: Tensor, positive: Tensor) -> Tensor:
        negatives = logits.masked_fill(positive, -1e9).logsumexp(dim=1, keepdim=True)
        terms = F.softplus(negatives - logits) * positive
        return (terms.sum(dim=1) / positive.sum(dim=1)).mean()

    logits = similarity / temperature
    return side(logits, positive) + side(logits.T, positive.T)


def specificity(captions: Tensor, entities: Tensor, margin: float) -> Tensor:
    """L_SPEC (eq. 12), a mean: an image is nearer to its whole caption than to its entities.

    captions, entities (O,): an image's similarity to its caption and to an entity of it.
    """
    return (margin + entities - captions).clamp(min=0).mean()
