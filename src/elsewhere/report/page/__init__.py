"""What every page is made of: the shell, blocks, the canvas, numbers and privacy."""
