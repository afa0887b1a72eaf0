"""Paper 03 by loops: one node, head, edge, dimension or pair at a time. Nothing here uses mmlib.

`w` is a state dict as float64 arrays; `name` is a layer's prefix in it.
"""

import math

import numpy as np
from scipy.special import softmax

# --- Layers --------------------------------------------------------------------------------------


def linear(w, name, x):
    return w[f"{name}.weight"] @ x + w.get(f"{name}.bias", 0.0)


def layer_norm(w, name, x):
    x = (x - x.mean()) / math.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)
    return x * w[f"{name}.weight"] + w[f"{name}.bias"]


def relu(x):
    return np.maximum(x, 0.0)


def positions(count, width):
    def wave(k, d):
        return (math.cos if d % 2 else math.sin)(k * 10000 ** (-(d - d % 2) / width))

    return np.array([[wave(k, d) for d in range(width)] for k in range(count)])


def gat(w, name, nodes, edges, form):
    """New nodes, and the weights of each head by (source, target, head). Edges (source, target)."""
    heads, size = w[f"{name}.attention"].shape
    value = f"{name}.value" if form == "authors" else f"{name}.right"
    new, weights = [], {}
    for i, node in enumerate(nodes):
        sources = [s for s, t in edges if t == i]
        message = np.zeros(heads * size)
        for head in range(heads):
            cut = slice(head * size, (head + 1) * size)
            scores = []
            for j in sources:
                pair = (linear(w, f"{name}.left", node) + linear(w, f"{name}.right", nodes[j]))[cut]
                scores.append(w[f"{name}.attention"][head] @ np.where(pair > 0, pair, 0.2 * pair))
            for j, alpha in zip(sources, softmax(scores) if sources else [], strict=True):
                weights[j, i, head] = alpha
                message[cut] += alpha * linear(w, value, nodes[j])[cut]
        if form == "authors":
            message = layer_norm(w, f"{name}.norm", linear(w, f"{name}.left", node) + message)
        new.append(relu(message))
    return np.array(new), weights


def context(w, name, entities, relations, form, ends=1):
    """Eq. 6; relations: (subject, vector, object)."""
    new = []
    for i, entity in enumerate(entities):
        active, passive = [], []
        for subject, vector, object_ in relations:
            edge = np.concatenate([vector, entities[object_], *[entities[subject]] * (ends - 1)])
            if subject == i:
                active.append(linear(w, f"{name}.active", edge))
            if object_ == i:
                passive.append(linear(w, f"{name}.passive", edge))
        if form == "printed":
            for terms in (active, passive):
                if terms:
                    entity = entity + sum(terms) / len(terms)
            new.append(entity)
        else:
            both = [relu(term) for term in active + passive]
            mean = sum(both) / len(both) if both else 0.0
            new.append(layer_norm(w, f"{name}.norm", entity + mean))
    return np.array(new)


def gru(w, name, inputs, reverse=False):
    """States in the order of the inputs; PyTorch's gates: reset, update, new."""
    end = "_l0_reverse" if reverse else "_l0"
    w_in, w_out = w[f"{name}.weight_ih{end}"], w[f"{name}.weight_hh{end}"]
    b_in, b_out = w[f"{name}.bias_ih{end}"], w[f"{name}.bias_hh{end}"]
    size = w_out.shape[1]
    state, states = np.zeros(size), []
    for x in inputs[::-1] if reverse else inputs:
        a, b = np.split(w_in @ x + b_in, 3), np.split(w_out @ state + b_out, 3)
        reset, update = 1 / (1 + np.exp(-a[0] - b[0])), 1 / (1 + np.exp(-a[1] - b[1]))
        state = (1 - update) * np.tanh(a[2] + reset * b[2]) + update * state
        states.append(state)
    return np.array(states[::-1] if reverse else states)


def bidirectional(w, name, inputs):
    return (gru(w, name, inputs) + gru(w, name, inputs, reverse=True)) / 2


def pooling_weights(w, name, count):
    states = bidirectional(w, f"{name}.gru", positions(count, 32))
    return softmax([linear(w, f"{name}.score", state)[0] / 0.1 for state in states])


def pool(vectors, weights):
    """Weighted sum of the k-th largest values of each dimension."""
    columns = [sorted(column, reverse=True) for column in np.transpose(vectors)]
    return np.array([sum(t * v for t, v in zip(weights, c, strict=True)) for c in columns])


def gpo(w, name, vectors):
    return pool(vectors, pooling_weights(w, name, len(vectors)))


# --- Encoders ------------------------------------------------------------------------------------


def image(w, regions, heads):
    """One image without padding, in evaluation mode."""
    rows = []
    for x in regions:
        hidden = linear(w, "hidden", x) - w["norm.running_mean"]
        hidden = hidden / np.sqrt(w["norm.running_var"] + 1e-5) * w["norm.weight"] + w["norm.bias"]
        rows.append(linear(w, "linear", x) + linear(w, "out", relu(hidden)))
    rows = np.array(rows)
    if "norm_before.weight" in w:
        z = rows
        if "position.weight" in w:
            z = [
                x + linear(w, "position", p) for x, p in zip(z, positions(len(z), 16), strict=True)
            ]
        z = [layer_norm(w, "norm_before", x) for x in z]
        maps, shifts = w["attention.in_proj_weight"], w["attention.in_proj_bias"]
        q, k, v = (
            [m @ x + s for x in z]
            for m, s in zip(np.split(maps, 3), np.split(shifts, 3), strict=True)
        )
        size = rows.shape[1] // heads
        seen = np.zeros_like(rows)
        for i in range(len(rows)):
            for head in range(heads):
                cut = slice(head * size, (head + 1) * size)
                alpha = softmax([q[i][cut] @ key[cut] / math.sqrt(size) for key in k])
                seen[i, cut] = sum(a * value[cut] for a, value in zip(alpha, v, strict=True))
        rows = np.array([x + linear(w, "attention.out_proj", s)
                         for x, s in zip(rows, seen, strict=True)])  # fmt: skip
        rows = np.array([
            x + linear(w, "feed_out", relu(linear(w, "feed_in", layer_norm(w, "norm_after", x))))
            for x in rows
        ])  # fmt: skip
    return gpo(w, "pool", rows)


def phrase(w, name, ids):
    words = w[f"{name}.embed.weight"][ids]
    last = gru(w, f"{name}.gru", words)[-1]
    if f"{name}.gru.weight_ih_l0_reverse" in w:
        last = (last + gru(w, f"{name}.gru", words, reverse=True)[0]) / 2
    return last


def neighbours(objects, owners, pairs, connected, joint):
    """Edges of the last GAT as (source, target), brute force over all pairs of nodes.

    owners: object of each attribute; pairs: (subject, object) of relations.
    """
    nodes = objects + (len(owners) if joint else 0)

    def tied(a, b):
        if a == b or connected:
            return True
        if a < objects and b < objects:
            return (a, b) in pairs or (b, a) in pairs
        first, second = min(a, b), max(a, b)
        return second >= objects > first and owners[second - objects] == first

    return [(a, b) for a in range(nodes) for b in range(nodes) if tied(a, b)]


def caption(w, objects, relations, system):
    """A caption's vector and its entities, or None for them in the Joint ablation.

    objects: (ids, [ids of each attribute]); relations: (subject, ids, object).
    """
    count, joint, authors = len(objects), system.steps == "one", system.form == "authors"

    def concept(ids, kind, layer):
        which = ("object", "attribute", "relation").index(kind) if authors else 0
        return relu(linear(w, f"concepts.{layer}", phrase(w, f"concepts.phrases.{which}", ids)))

    nodes = [concept(ids, "object", "node") for ids, _ in objects]
    attributes = [[concept(a, "attribute", "node") for a in own] for _, own in objects]
    edges = [(a, concept(ids, "relation", "relation"), b) for a, ids, b in relations]
    entities = []
    for node, own in zip(nodes, attributes, strict=True):  # each object is a star of its own
        star = np.array([node, *own])
        for layer in range(0 if joint else system.attribute_layers):
            ties = [(0, 0)] + [e for k in range(1, len(star)) for e in ((k, 0), (0, k))]
            star, _ = gat(w, f"attributes.{layer}", star, ties, system.attention)
        entities.append(star[0])
    hidden = np.array(entities)
    if authors:
        places = [linear(w, "context.position", p) for p in positions(count, 16)]
        hidden = np.array([layer_norm(w, "context.position_norm", h + p)
                           for h, p in zip(hidden, places, strict=True)])  # fmt: skip
    hidden = context(w, "context", hidden, edges, system.form, system.ends)
    owners = [i for i, own in enumerate(attributes) for _ in own]
    if joint:
        hidden = np.array([*hidden, *(a for own in attributes for a in own)])
    ties = neighbours(count, owners, {(a, b) for a, _, b in relations}, system.connected, joint)
    for layer in range(2 if joint else system.object_layers):
        hidden, _ = gat(w, f"objects.{layer}", hidden, ties, system.attention)
    return gpo(w, "pool", hidden[:count]), None if joint else np.array(entities)


# --- Losses --------------------------------------------------------------------------------------


def contrastive(s, positive, temperature):
    """The image side and the concept side of L_CON, each a mean over its anchors."""
    s, positive = np.asarray(s), np.asarray(positive)
    sides = []
    for scores, mates in ((s, positive), (s.T, positive.T)):
        anchors = []
        for row, own in zip(scores, mates, strict=True):
            negatives = [x / temperature for x, p in zip(row, own, strict=True) if not p]
            terms = []
            for x in (x / temperature for x, p in zip(row, own, strict=True) if p):
                terms.append(np.logaddexp.reduce([x, *negatives]) - x)
            anchors.append(sum(terms) / len(terms))
        sides.append(sum(anchors) / len(anchors))
    return sides


def authors_contrastive(s, positive, temperature):
    """L_CON of the authors' code and its gradient (N, M) in s, term by term.

    Exponentials are divided by the largest of their row, and 1e-9 (anchors are images) or 1e-6
    (anchors are concepts) is added to each denominator.
    """
    loss, gradient = 0.0, np.zeros(np.shape(s))
    for of_images, added in ((True, 1e-9), (False, 1e-6)):
        scores, mates, change = (
            x if of_images else x.T for x in (np.asarray(s), np.asarray(positive), gradient)
        )
        for row, own, slope in zip(scores, mates, change, strict=True):
            e = [np.exp((x - max(row)) / temperature) for x in row]
            negatives = [j for j in range(len(row)) if not own[j]]
            share = 1 / (len(scores) * sum(own))
            for p in (j for j in range(len(row)) if own[j]):
                below = sum(e[j] for j in negatives) + e[p] + added
                loss -= share * ((row[p] - max(row)) / temperature - np.log(below))
                slope[p] += share * (e[p] / below - 1) / temperature
                for j in negatives:
                    slope[j] += share * e[j] / below / temperature
    return loss, gradient


def specificity(s, entities, margin):
    """All hinges. s (N, N); entities: (row, similarity of that row's image to an entity of it)."""
    return [max(0.0, margin + x - s[i][i]) for i, x in entities]


def names_it(entity, others):
    """Whether one of `others` has the entity's name and all of its attributes."""
    name, attributes = entity
    return any(name == other and set(attributes) <= set(said) for other, said in others)
