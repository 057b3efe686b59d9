"""Named, versioned scoring rules; `protocols.get("dbtex-paper")`."""

from elsewhere.protocols.protocol import (
    ClassificationRules,
    DetectionRules,
    FairnessRules,
    IntervalRules,
    Protocol,
    ResponseRules,
    SegmentationRules,
    SlideRules,
    add_protocol,
    protocols,
)

__all__ = [
    "ClassificationRules",
    "DetectionRules",
    "FairnessRules",
    "IntervalRules",
    "Protocol",
    "ResponseRules",
    "SegmentationRules",
    "SlideRules",
    "add_protocol",
    "protocols",
]
