"""Exercises: checks that say right or wrong and why, a course's versions, and its marks.

An exercise is five cells in a row, marked by tags (`FORM`): the question, a blank for the student,
the worked answer, a check, and the explanation. A check cell calls `number`, `choice` or
`function`. `versions.write` makes the students' version, which has no answers and only hashes in
its checks, and the teacher's, which has no blanks; `grading.grade` grades what comes back.
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

__all__ = ["FORM", "CourseError", "NoAnswer", "WrongAnswer", "check", "choice", "exercises"]
__all__ += ["form_faults", "function", "number"]
