"""From scores to what is shown of a model, a ranking or a study: below the report, above scoring."""
