"""The report of one result: sections, figures and tables of a summary."""
