"""Notebook 02: what it builds by hand is the library's, and it keeps to its size."""

import ast
from pathlib import Path

import nbformat
import numpy as np
import torch
from torch import nn

from mmlib.features.encoders import in_batch_softmax
from mmlib.papers.entailment.data import controlled
from mmlib.papers.entailment.method import classifier, metrics, revision

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "02_entailment_revision.ipynb"
CELLS = nbformat.read(NOTEBOOK, as_version=4).cells


def defined(*cells):
    """The names that the functions and classes of some cells define, without their other lines."""
    names = {"torch": torch, "nn": nn, "np": np, "metrics": metrics,
             "controlled": controlled}  # fmt: skip
    for cell in CELLS:
        if cell.id in cells:
            tree = ast.parse(cell.source)
            defining = (ast.FunctionDef, ast.ClassDef)
            tree.body = [part for part in tree.body if isinstance(part, defining)]
            exec(compile(tree, cell.id, "exec"), names)
    return names


def test_the_gate_by_hand_is_the_gate():
    torch.manual_seed(0)
    ours, library = defined("c017")["Gate"](5), classifier.Gate(5)
    library.load_state_dict(ours.state_dict())
    te, ve = torch.randn(2, 3, 5)
    torch.testing.assert_close(ours(te, ve), library(te, ve)[0])


def test_the_revised_loss_by_hand_is_the_loss_and_has_its_gradient():
    torch.manual_seed(0)
    by_hand, same = defined("loss")["revised_loss"], torch.rand(6, 6) < 0.3
    same |= torch.eye(6, dtype=torch.bool)
    logits = torch.randn(6, 6)
    ours, library = (logits.clone().requires_grad_() for _ in range(2))
    values = by_hand(ours, same), in_batch_softmax(library, same)
    torch.testing.assert_close(*values)
    for value in values:
        value.backward()
    torch.testing.assert_close(ours.grad, library.grad)
    assert (ours.grad[same & ~torch.eye(6, dtype=torch.bool)] == 0).all()


def test_mining_by_hand_proposes_the_candidates_of_the_library_and_sets_a_threshold(monkeypatch):
    monkeypatch.setattr(controlled, "COUNTS", {"train": 60, "test": 20, "judge": 40})
    monkeypatch.setattr(controlled, "LEARNT", 30)
    toy = controlled.load(2)
    retriever, judge = controlled.untrained("dual", 0), controlled.Judge()
    asked, yes = defined("mine")["mine"](judge, retriever, toy)
    split, labelled = toy.splits["train"], toy.splits["judge"]
    scores, _ = retriever.rank(*split.tensors(toy.table))
    assert asked.tolist() == revision.candidates(scores, split.image_of).tolist()
    scores, _ = retriever.rank(*labelled.tensors(toy.table))
    known = revision.candidates(scores, labelled.image_of)
    known = known[known[:, 0] >= 30]
    odds = controlled.odds_of(judge, toy, labelled, known)["mm"]
    limit = metrics.best_threshold(labelled.fits[tuple(known.T)], odds)
    expected = controlled.odds_of(judge, toy, split, asked)["mm"] >= limit
    assert yes.tolist() == expected.tolist()
