"""The study files that ship: `elsewhere plan ultrasound` finds them by name."""
