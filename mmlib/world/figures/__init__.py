"""How each kind of thing is drawn, in the thing's own coordinates.

Every figure stands on (0, 0), looks to the right, and is about 1 unit high when it stands.
"""

from collections.abc import Callable
from functools import partial

from mmlib.world.figures import inanimate
from mmlib.world.figures.animals import BEASTS, FOWLS, beast, fowl
from mmlib.world.figures.people import BUILDS, person
from mmlib.world.pen import Pen, Point

_FIGURES: dict[str, Callable[[Pen, str | None], None]] = {
    **{kind: partial(beast, shape=shape) for kind, shape in BEASTS.items()},
    **{kind: partial(fowl, shape=shape) for kind, shape in FOWLS.items()},
    **inanimate.FIGURES,
}


def draw_figure(pen: Pen, kind: str, action: str | None, reach: Point | None = None) -> None:
    """Draw one thing of a kind; `reach` is where a person's near hand holds something."""
    if kind in BUILDS:
        person(pen, action, BUILDS[kind], reach)
    else:
        _FIGURES[kind](pen, action)
