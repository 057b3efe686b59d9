"""Imports every recipe that ships, so that it registers. One line per file, in alphabetical order."""

from __future__ import annotations

import elsewhere.recipes.mri.breast_crop
import elsewhere.recipes.mri.clinical
import elsewhere.recipes.mri.masked_autoencoder
import elsewhere.recipes.mri.network_xgboost
import elsewhere.recipes.mri.nnunet
import elsewhere.recipes.mri.radiomics
import elsewhere.recipes.mri.random_classifier
import elsewhere.recipes.mri.residual_unet
import elsewhere.recipes.mri.segmentation_xgboost
import elsewhere.recipes.mri.shared_encoder
import elsewhere.recipes.mri.simclr
import elsewhere.recipes.mri.slice_cnn
import elsewhere.recipes.mri.subgroup_reweighting
import elsewhere.recipes.mri.subtraction
import elsewhere.recipes.mri.video
import elsewhere.recipes.pictures.classifier
import elsewhere.recipes.pictures.finder
import elsewhere.recipes.tomosynthesis.dense_detector
import elsewhere.recipes.tomosynthesis.faster_rcnn
import elsewhere.recipes.tomosynthesis.nyu
import elsewhere.recipes.tomosynthesis.pittrad
import elsewhere.recipes.tomosynthesis.pranjalsahu
import elsewhere.recipes.tomosynthesis.ucla_mii
import elsewhere.recipes.tomosynthesis.vicorob
import elsewhere.recipes.tomosynthesis.zedus  # noqa: F401
