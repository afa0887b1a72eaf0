"""Exercises: checks that say right or wrong and why, a course's versions, and its marks.

An exercise is three cells in a row, marked by tags (`FORM`): the question, a blank for the student,
and a check, which calls `number`, `choice` or `function`. Its worked answer lies in the folder
`answers` beside the notebook. `versions.write` copies notebooks for students, or with the answers;
`grading.grade` grades what comes back.
"""

from mmlib.suite.course.checks import choice, function, number, solved
from mmlib.suite.course.form import FORM, exercises, form_faults

__all__ = ["FORM", "choice", "exercises", "form_faults", "function", "number", "solved"]
