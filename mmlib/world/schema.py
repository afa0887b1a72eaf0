"""What the picture world contains: its kinds, attributes, actions, relations, and the scene record."""

from dataclasses import dataclass

GROUPS: dict[str, tuple[str, ...]] = {
    "person": ("man", "woman", "boy", "girl"),
    "animal": ("dog", "cat", "horse", "bird", "sheep", "cow", "duck"),
    "vehicle": ("car", "bus", "bicycle", "boat", "truck"),
    "plant": ("tree", "flower", "bush", "cactus"),
    "building": ("house", "tower", "barn", "tent"),
    "thing": ("ball", "kite", "umbrella", "bench", "box", "balloon", "chair", "lamp"),
}
GROUP_OF: dict[str, str] = {kind: group for group, kinds in GROUPS.items() for kind in kinds}
KINDS: tuple[str, ...] = tuple(GROUP_OF)
COLOURS = (
    "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white",
)  # fmt: skip
SIZES = ("small", "medium", "large")
PATTERNS = ("plain", "striped", "spotted", "checked")
ACTIONS = (
    "standing", "walking", "running", "jumping", "sitting", "lying", "flying", "floating",
    "moving", "eating",
)  # fmt: skip
SPATIAL_RELATIONS = ("left of", "right of", "behind", "in front of", "near", "on", "under")
ACTION_RELATIONS = ("holding", "riding", "chasing")
RELATIONS = SPATIAL_RELATIONS + ACTION_RELATIONS
SETTINGS = ("beach", "park", "street", "desert", "snow", "forest", "field", "mountain")
STYLES = ("photo", "sketch", "black and white", "flat")


@dataclass(frozen=True)
class Thing:
    """One object of a scene.

    kind, colour, size, pattern, action: names from this module (action is None for what cannot act).
    x: centre, 0 (left edge) to 1 (right edge).
    y: where it touches the ground (or its lower edge, if flying), 0 (top) to 1 (bottom); nearer is lower.
    facing: -1 left, 1 right.
    """

    kind: str
    colour: str
    size: str
    pattern: str
    action: str | None
    x: float
    y: float
    facing: int = 1


@dataclass(frozen=True)
class Scene:
    """A picture's content. `relations` holds (subject, relation, object) with indices into `things`:
    all that hold, spatial ones derived from the positions, action ones chosen when sampled."""

    things: tuple[Thing, ...]
    relations: tuple[tuple[int, str, int], ...]
    setting: str
    style: str
    seed: int
