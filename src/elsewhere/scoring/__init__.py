"""One file a task: predictions and cohort to scores, scores to metrics under patient weights."""
