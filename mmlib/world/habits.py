"""What goes with what: the habits of the picture world, read by the sampler of scenes."""

from mmlib.world.schema import GROUPS

PEOPLE = GROUPS["person"]


def _by_kind(table: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """{"kind kind": "name name"} spread out to {kind: (name, name)}."""
    return {kind: tuple(names.split()) for kinds, names in table.items() for kind in kinds.split()}


# fmt: off
# The kinds of each setting; people are everywhere.
HABITAT: dict[str, frozenset[str]] = {
    setting: frozenset(PEOPLE) | frozenset(kinds)
    for setting, kinds in _by_kind({
        "beach": "dog horse bird duck boat bush tower tent ball kite umbrella bench box balloon "
                 "chair",
        "park": "dog cat bird duck bicycle tree flower bush ball kite umbrella bench balloon "
                "chair lamp box",
        "street": "dog cat bird car bus bicycle truck tree house tower umbrella bench box balloon "
                  "lamp chair ball",
        "desert": "horse dog bird cow car truck cactus bush tent tower box umbrella balloon",
        "snow": "dog cat horse bird truck car tree bush house barn tent ball box lamp bench",
        "forest": "dog cat horse bird bicycle tree bush flower house tent bench box ball",
        "field": "dog horse bird sheep cow duck truck bicycle tree bush flower house barn tent "
                 "ball kite balloon box",
        "mountain": "dog horse bird sheep cow duck boat tree bush flower house tower tent kite "
                    "bicycle box",
    }).items()
}
_ANY = "red orange yellow green blue purple pink brown black white"
PALETTE: dict[str, tuple[str, ...]] = _by_kind({
    "man woman boy girl bird ball kite umbrella balloon chair box bench tent": _ANY,
    "car bus truck bicycle boat": "red orange yellow green blue purple pink black white",
    "dog": "brown black white yellow orange",
    "cat": "orange black white brown",
    "horse": "brown black white orange",
    "sheep": "white black brown",
    "cow": "brown black white",
    "duck": "white yellow brown green",
    "tree": "green orange yellow red",
    "bush": "green yellow red pink",
    "cactus": "green yellow",
    "flower": "red orange yellow purple pink white blue",
    "house tower": "red yellow blue white brown pink orange green",
    "barn": "red brown white blue green",
    "lamp": "black white red green blue yellow",
})
PATTERNED: dict[str, tuple[str, ...]] = _by_kind({  # besides plain
    "man woman boy girl ball kite umbrella balloon tent box": "striped spotted checked",
    "dog cow horse": "spotted",
    "cat bird": "striped spotted",
    "car bus truck boat house tower barn bench chair": "striped checked",
    "flower": "spotted",
    "sheep duck bicycle tree bush cactus lamp": "",
})
ABLE: dict[str, tuple[str, ...]] = _by_kind({  # what each kind does by itself
    "man woman boy girl": "standing walking running jumping sitting lying eating",
    "dog cat": "standing walking running jumping sitting lying eating",
    "horse": "standing walking running jumping eating",
    "cow sheep": "standing walking lying eating",
    "bird": "flying standing walking eating",
    "duck": "floating walking standing flying",
    "car bus truck": "moving standing",
    "bicycle": "standing",
    "boat": "floating moving",
    "kite": "flying",
    "balloon": "floating",
    "ball tree flower bush cactus house tower barn tent umbrella bench box chair lamp": "",
})
ONLY_PAIRED = {"bicycle": "moving", "ball": "moving", "sheep": "running", "duck": "running"}
# Who may stand in which relation to what, where a setting has both.
_SMALL = ("dog", "cat", "duck", "ball")
PAIRS: dict[str, dict[str, tuple[str, ...]]] = {
    "riding": dict.fromkeys(PEOPLE, ("horse", "bicycle")),
    "holding": dict.fromkeys(PEOPLE, ("kite", "balloon", "umbrella", "ball", "flower", "box")),
    "chasing": {
        "dog": ("cat", "dog", "duck", "ball", "sheep", "boy", "girl"),
        "cat": ("ball", "duck", "dog"),
        "boy": (*_SMALL, "girl", "sheep"),
        "girl": (*_SMALL, "boy", "sheep"),
        "man": ("dog", "sheep", "boy", "girl", "horse"),
        "woman": ("dog", "sheep", "boy", "girl", "horse"),
    },
    "on": {
        **dict.fromkeys(PEOPLE, ("bench", "chair", "boat")),
        "cat": ("bench", "box", "chair", "car"),
        "dog": ("bench", "box", "boat"),
        "bird": ("bench", "box", "house", "barn", "car", "bus", "cow", "sheep", "boat"),
        "ball": ("bench", "box", "chair"),
        "box": ("bench", "truck"),
    },
    "under": dict.fromkeys(
        (*PEOPLE, "dog", "cat", "horse", "cow", "sheep", "bench", "box", "chair", "bicycle"),
        ("tree",),
    ),
}
# What the two of a pair do, where their kinds can.
ROLES = {
    "riding": ("sitting", "walking running moving"),
    "holding": ("standing walking running sitting jumping", "flying floating"),
    "chasing": ("running", "running moving"),
    "on": ("sitting lying standing", "standing moving floating"),
    "under": ("standing walking sitting lying eating", ""),
}
# How high the seat of something is, in parts of its own height.
SEAT = {
    "bench": 0.5, "chair": 0.5, "box": 0.95, "car": 0.97, "bus": 0.98, "truck": 0.6, "house": 0.97,
    "barn": 0.97, "cow": 0.8, "sheep": 0.85, "horse": 0.68, "bicycle": 0.65, "boat": 0.22,
}

GROUP_WEIGHT = {
    "person": 0.27, "animal": 0.22, "vehicle": 0.13, "plant": 0.13, "building": 0.1, "thing": 0.15,
}
# Kinds of few settings are the more frequent there.
KIND_WEIGHT = {"bus": 9, "car": 2, "boat": 2, "barn": 4, "cactus": 4, "tower": 1.5, "chair": 4,
               "lamp": 4, "umbrella": 2, "cow": 1.5, "sheep": 1.5}
PAIR_WEIGHT = {"riding": 0.2, "holding": 0.3, "chasing": 0.15, "on": 0.2, "under": 0.15}
COUNT_WEIGHT = {1: 0.1, 2: 0.2, 3: 0.27, 4: 0.24, 5: 0.19}
STYLE_WEIGHT = {"photo": 0.4, "sketch": 0.2, "black and white": 0.2, "flat": 0.2}
SIZE_WEIGHT = {"small": 0.28, "medium": 0.44, "large": 0.28}
# fmt: on
