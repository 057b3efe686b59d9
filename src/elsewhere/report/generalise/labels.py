"""What the metrics of patches are called on a page."""

LABELS = {"dice": "Dice, tumour patches", "fpr": "False-positive rate, normal patches"}
SHORT = {"dice": "Dice", "fpr": "False-positive rate"}
