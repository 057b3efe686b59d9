"""Imports every recipe that ships, so that it registers. One line a file, in alphabetical order."""

from __future__ import annotations

import elsewhere.recipes.simclr
import elsewhere.recipes.video  # noqa: F401
