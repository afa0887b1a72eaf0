"""How each kind of thing is drawn, in the thing's own coordinates.

Every figure stands on (0, 0), looks to the right, and is about 1 unit high when it stands.
"""

from collections.abc import Callable
from functools import partial

from mmlib.world.figures import inanimate
from mmlib.world.figures.animals import BEASTS, FOWLS, beast, fowl
from mmlib.world.figures.people import BUILDS, person
from mmlib.world.pen import Pen, Point
from mmlib.world.schema import GROUP_OF, GROUPS

# kind -> function (pen, action) that draws it
_FIGURES: dict[str, Callable[..., None]] = {
    **{kind: partial(person, build=build) for kind, build in BUILDS.items()},
    **{kind: partial(beast, shape=shape) for kind, shape in BEASTS.items()},
    **{kind: partial(fowl, shape=shape) for kind, shape in FOWLS.items()},
    **{
        kind: getattr(inanimate, kind)
        for group in ("vehicle", "plant", "building", "thing")
        for kind in GROUPS[group]
    },
}


def draw_figure(pen: Pen, kind: str, action: str | None, reach: Point | None = None) -> None:
    """Draw one thing of a kind; `reach` is where a person's near hand holds something."""
    if GROUP_OF[kind] == "person":
        _FIGURES[kind](pen, action, reach=reach)
    else:
        _FIGURES[kind](pen, action)
