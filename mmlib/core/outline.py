"""Whether two machines have the same data, although their arithmetic differs.

Features of pictures and word vectors are computed, and processors with the same instructions
add in another order. A fingerprint, a hash of every bit, then differs; an outline does not.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np
from torch import Tensor

TOLERANCE = 1e-3  # of an array's root mean square; a thousand times what arithmetic changes
ROWS = 64  # of a memory-mapped array


def outline(data: Any) -> dict[str, Any]:
    """What data hold: `exact`, a hash of all but fractions, and `sketches` of the fractions.

    Looks into containers, arrays, tensors and the public attributes of objects. Of an array of
    fractions the hash has the shape, and a sketch, "RMS ALONG", its root mean square and its
    projection on a random direction, to which every element counts alike; of a memory-mapped array
    only some rows count. Of a path only the last name counts.
    """
    digest, sketches = hashlib.sha256(), list[str]()
    _read(data, digest, sketches)
    return {"exact": digest.hexdigest()[:16], "sketches": sketches}


def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two outlines are of the same data, but for rounding."""
    a, b = (
        np.array([text.split() for text in found["sketches"]], dtype=float).reshape(-1, 2)
        for found in (one, other)
    )
    if one["exact"] != other["exact"] or a.shape != b.shape:
        return False
    return bool((np.abs(a - b) <= TOLERANCE * np.abs(a[:, :1])).all())


def _read(part: Any, digest: Any, sketches: list[str]) -> None:
    if isinstance(part, Tensor):
        part = part.detach().cpu().float().numpy() if part.is_floating_point() else part.numpy()
    if isinstance(part, np.memmap):
        part = part[np.linspace(0, len(part) - 1, ROWS).astype(int)]
    named = isinstance(part, Mapping)
    if named:  # its order may be that of a set, which changes
        names = sorted(part, key=str)
        digest.update(repr([str(name) for name in names]).encode())
        part = [part[name] for name in names]
    if isinstance(part, list | tuple) and part and all(map(_has_fractions, part)):
        shapes = [np.shape(one) for one in part]
        if not named or not any(shapes):  # arrays of different names may differ in size by far
            digest.update(repr(shapes).encode())
            part = np.concatenate([np.ravel(one) for one in part])
    if isinstance(part, np.ndarray) and part.dtype != object:
        digest.update(f"{part.shape}{part.dtype.kind}".encode())
        if _has_fractions(part):
            sketches.append(_sketch(part))
        else:
            digest.update(np.ascontiguousarray(part).tobytes())
    elif isinstance(part, list | tuple | np.ndarray | range):
        digest.update(f"{len(part)}[".encode())
        for one in part:
            _read(one, digest, sketches)
    elif isinstance(part, str | PurePath):
        digest.update(f"{PurePath(part).name if str(part).startswith('/') else part};".encode())
    elif _has_fractions(part):
        sketches.append(f"{part:.6g} 0")
    elif part is None or isinstance(part, int | bytes | np.generic):
        digest.update(f"{part!r};".encode())
    else:
        kind = type(part)
        own = {
            name: value
            for name, value in vars(part).items()
            if not name.startswith("_")
            and not isinstance(getattr(kind, name, None), cached_property)
        }
        _read(own, digest, sketches)


def _has_fractions(part: Any) -> bool:
    is_array = isinstance(part, np.ndarray) and part.dtype.kind == "f"
    return is_array or isinstance(part, float | np.floating)


def _sketch(array: np.ndarray) -> str:
    """An array's root mean square, and its projection on a direction that is always the same."""
    flat = np.nan_to_num(np.ravel(array).astype(np.float32), posinf=0, neginf=0)
    rms = float(np.sqrt(np.mean(np.square(flat, dtype=np.float64)))) if flat.size else 0.0
    direction = np.random.default_rng(0).standard_normal(flat.size, dtype=np.float32)
    along = float(np.sum(flat * direction, dtype=np.float64)) / np.sqrt(max(flat.size, 1))
    return f"{rms:.6g} {along:.6g}"
