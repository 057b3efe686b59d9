"""Imports every recipe that ships, so that it registers. One line a file, in alphabetical order."""

from __future__ import annotations

import elsewhere.recipes.breast_crop
import elsewhere.recipes.clinical
import elsewhere.recipes.masked_autoencoder
import elsewhere.recipes.network_xgboost
import elsewhere.recipes.nnunet
import elsewhere.recipes.radiomics
import elsewhere.recipes.random_classifier
import elsewhere.recipes.residual_unet
import elsewhere.recipes.segmentation_xgboost
import elsewhere.recipes.shared_encoder
import elsewhere.recipes.simclr
import elsewhere.recipes.slice_cnn
import elsewhere.recipes.subgroup_reweighting
import elsewhere.recipes.subtraction
import elsewhere.recipes.video  # noqa: F401
