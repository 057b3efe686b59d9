"""The study file: cohorts, scenarios, inputs and models, tasks and recipes, seeds and analyses, as TOML.

A study is data. Every key is known: a mistyped one is refused with its neighbours, because a study that silently runs
with a default is a wrong study. A study may hold pictures and volumes at once: pairs of [models] and [inputs] and the
sections of [recipes] are all methods of it.
"""

from __future__ import annotations

from elsewhere.study.file.loading import load_study, parse_study, shipped
from elsewhere.study.file.sections import (
    AnalysesSection,
    CohortSection,
    FinderSection,
    InputSection,
    ModelSection,
    RecipeSection,
    ScenarioSection,
    StudySection,
    TaskSection,
)
from elsewhere.study.file.study import CLASSIFICATION, DATA_VARIABLE, Study, StudyFile

__all__ = [
    "CLASSIFICATION",
    "DATA_VARIABLE",
    "AnalysesSection",
    "CohortSection",
    "FinderSection",
    "InputSection",
    "ModelSection",
    "RecipeSection",
    "ScenarioSection",
    "Study",
    "StudyFile",
    "StudySection",
    "TaskSection",
    "load_study",
    "parse_study",
    "shipped",
]
