"""Many models on one cohort: which entries there are, and their ranks with intervals and tiers."""
