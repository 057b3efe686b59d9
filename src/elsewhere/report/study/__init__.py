"""The report of a study: sections and figures by topic, found by the tables that a study has."""
