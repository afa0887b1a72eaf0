"""What goes with what in the picture world, as `habits.yaml` beside this file lists it."""

from mmlib.core.paths import table_beside
from mmlib.world.schema import GROUPS

_HABITS = table_beside(__file__)


def _by_kind(table: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """{"kind kind": "name name"} spread out to {kind: (name, name)}."""
    return {kind: tuple(names.split()) for kinds, names in table.items() for kind in kinds.split()}


PEOPLE = GROUPS["person"]
# setting -> kinds
HABITAT = {
    setting: frozenset((*PEOPLE, *kinds.split())) for setting, kinds in _HABITS["habitat"].items()
}
# kind -> colours; patterns besides plain; actions by itself
PALETTE = _by_kind(_HABITS["palette"])
PATTERNED = _by_kind(_HABITS["patterned"])
ABLE = _by_kind(_HABITS["able"])
ONLY_PAIRED: dict[str, str] = _HABITS["only_paired"]
# relation -> kind of the subject -> kinds of the object
PAIRS = {relation: _by_kind(table) for relation, table in _HABITS["pairs"].items()}
ROLES: dict[str, tuple[str, str]] = _HABITS["roles"]  # actions of the subject, of the object
SEAT: dict[str, float] = _HABITS["seat"]
GROUP_WEIGHT: dict[str, float] = _HABITS["group_weight"]
KIND_WEIGHT: dict[str, float] = _HABITS["kind_weight"]
PAIR_WEIGHT: dict[str, float] = _HABITS["pair_weight"]
COUNT_WEIGHT: dict[int, float] = _HABITS["count_weight"]
STYLE_WEIGHT: dict[str, float] = _HABITS["style_weight"]
SIZE_WEIGHT: dict[str, float] = _HABITS["size_weight"]
