"""What may be shared of a result, a ranking or a study: no id, no folder, no cell of one to four patients.

These modules serve all that leaves the machine (pages, tables, exports) and the key file that does not.

- `redaction`: ids and folders taken out of texts and summaries (`Redactor`);
- `hashes`: salted hashes of cases, and the key file that resolves them (`hash_ids`, `write_key_file`);
- `cells`: counts of one to four people, and numbers that imply them (`suppress_counts`, `suppress_rows`);
- `tables`: the same for tables and free notes (`redacted_table`, `nameless`);
- `sharing`: the note in a folder that says which of its files may be shared (`write_sharing_note`).
"""

from elsewhere.privacy.cells import (
    SMALLEST_CELL,
    SUPPRESSED,
    is_withheld,
    patients_of_row,
    roughly,
    suppress,
    suppress_counts,
    suppress_rows,
)
from elsewhere.privacy.hashes import hash_ids, looks_hashed, new_salt, write_key_file, write_pairs
from elsewhere.privacy.redaction import Redactor, marks_in
from elsewhere.privacy.sharing import KEY_FILE, SHARING_FILE, write_sharing_note
from elsewhere.privacy.tables import LEFT_OUT, nameless, redacted_table

__all__ = [
    "KEY_FILE",
    "LEFT_OUT",
    "SHARING_FILE",
    "SMALLEST_CELL",
    "SUPPRESSED",
    "Redactor",
    "hash_ids",
    "is_withheld",
    "looks_hashed",
    "marks_in",
    "nameless",
    "new_salt",
    "patients_of_row",
    "redacted_table",
    "roughly",
    "suppress",
    "suppress_counts",
    "suppress_rows",
    "write_key_file",
    "write_pairs",
    "write_sharing_note",
]
