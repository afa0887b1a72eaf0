"""Exercises: checks that say right or wrong and why, a course's versions, and its marks.

An exercise is five cells in a row, marked by tags (`FORM`): the question, a blank for the student,
the worked answer, a check, and the explanation. A check cell calls `number`, `choice` or
`function`. `write` makes the students' version, which has no answers and only hashes in its checks,
and the teacher's, which has no blanks; `grade` grades what comes back.

Results of a notebook go where its parameter `out` says; left empty, to `../runs/lab/` as seen from
the notebook. So the notebooks of a course in `teaching/week1/` write into `teaching/runs/lab/`, and
two versions side by side share that folder: run them one after the other, or set `out`.
"""

from mmlib.suite.course.checks import (
    CourseError,
    NoAnswer,
    WrongAnswer,
    check,
    choice,
    function,
    number,
)
from mmlib.suite.course.form import FORM, exercises, form_faults

__all__ = [
    "FORM",
    "CourseError",
    "NoAnswer",
    "WrongAnswer",
    "check",
    "choice",
    "exercises",
    "form_faults",
    "function",
    "number",
]
