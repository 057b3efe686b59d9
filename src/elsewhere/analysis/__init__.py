"""From scores to what a study shows: registered analyses of results, below the report and above scoring."""
