"""One file per task: predictions and cohort to scores, and scores to metrics under patient weights."""
