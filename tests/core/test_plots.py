import matplotlib.pyplot as plt

from mmlib.core import plots


def test_a_dial_that_nobody_can_turn_is_its_picture_alone(capsys):
    assert plots.dial(lambda x=2: plt.figure(figsize=(x, x)), x=[1, 2]).get_figwidth() == 2
    assert "Slider" not in capsys.readouterr().out


def test_a_number_below_zero_has_a_minus_sign():
    axis = plt.figure().subplots()
    plots.spans(axis, {"a": {0: (2.0, 1.0, 4.0), 1: (-3.0, -3.0, 5.0)}}, numbers="+.1f")
    assert [text.get_text() for text in axis.texts] == ["+2.0", "−3.0"]


def test_curves_from_the_start_have_their_chance():
    panels = {"loss": {"a": [3, 2, 1]}, "mAP": {"a": [5, 6]}}
    loss, level = plots.curves(panels, {"mAP": 4.0}, first=0).axes
    assert list(loss.lines[0].get_xdata()) == [0, 1, 2]
    assert len(loss.lines) == 1
    assert list(level.lines[1].get_ydata()) == [4.0, 4.0]
