"""What the picture world contains: kinds, attributes, actions, relations, and the scene record."""

from dataclasses import dataclass

from mmlib.core.paths import table_beside

_TABLES = table_beside(__file__)
GROUPS: dict[str, tuple[str, ...]] = {
    name: tuple(kinds) for name, kinds in _TABLES["kinds"].items()
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

    kind, colour, size, pattern, action: names from this module (no action: None).
    x: centre, 0 (left edge) to 1 (right edge).
    y: the point of the ground at or below it, 0 (top) to 1 (bottom); nearer is lower, drawn later
        and larger.
    facing: -1 left, 1 right.
    lift: how far its lower edge is above that point: 0 on the ground, more in the air or on a seat.
    """

    kind: str
    colour: str
    size: str
    pattern: str
    action: str | None
    x: float
    y: float
    facing: int = 1
    lift: float = 0.0


@dataclass(frozen=True)
class Scene:
    """A picture's content.

    relations: (subject, relation, object) with indices into `things`: all that hold, the spatial
        ones derived from the positions, those of action chosen when sampled.
    """

    things: tuple[Thing, ...]
    relations: tuple[tuple[int, str, int], ...]
    setting: str
    style: str
    seed: int


# --- Geometry, shared by whoever places things and whoever draws them ---------------------------

HORIZON = 0.45
WATER = {"beach": (HORIZON, 0.63), "mountain": (HORIZON, 0.59)}  # sea and lake: from y to y
ROAD = {"street": (0.64, 0.84)}
SIZE_FACTOR = {"small": 0.7, "medium": 1.0, "large": 1.4}
# kind -> (height as a fraction of the picture's side, width / height), of the medium size
SHAPE: dict[str, tuple[float, float]] = {
    kind: (high, aspect)
    for shapes in _TABLES["kinds"].values()
    for kind, (high, aspect) in shapes.items()
}


def scale(y: float) -> float:
    """Size of what stands at depth `y`: 0.7 at the horizon side (y = 0.5) to 1.2 at the front."""
    return 0.7 + max(0.0, y - 0.5)


def height(item: Thing) -> float:
    """Standing height as a fraction of the picture's side."""
    return SHAPE[item.kind][0] * scale(item.y) * SIZE_FACTOR[item.size]


def box(item: Thing) -> tuple[float, float, float, float]:
    """(left, top, right, bottom) of a thing as drawn, as a fraction of the picture's side."""
    height, aspect = SHAPE[item.kind]
    wide, high = _TABLES["poses"].get(GROUP_OF[item.kind], {}).get(item.action, (1.0, 1.0))
    height *= scale(item.y) * SIZE_FACTOR[item.size]
    half = height * aspect * wide / 2
    bottom = item.y - item.lift
    return item.x - half, bottom - height * high, item.x + half, bottom
