"""What the results pages of docs/results/ are filled with: one module per page, read from committed tables."""
