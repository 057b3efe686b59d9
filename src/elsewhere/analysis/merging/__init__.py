"""The boxes of several detectors merged: settings, the search over them, and what the merge gains elsewhere."""
