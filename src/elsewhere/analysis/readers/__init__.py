"""Reader studies: from a workbook or from result folders to the content of a summary."""
