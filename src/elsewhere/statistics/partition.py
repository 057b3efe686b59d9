"""The one place where cases become patients.

Standard errors, bootstraps and permutations all take the same `Partition` (ST-01): the cluster is the
patient, the stratum is the site, and, where a metric asks for it, the patient's class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows

IntArray = npt.NDArray[np.int32]
UNKNOWN_SITE = "unknown"
"""Where a case without a site is counted: a row of its own, and no hospital."""


@dataclass(frozen=True)
class Partition:
    """`cluster_of_case[i]` is the patient of case i; `site_of_cluster[c]` the stratum she is resampled in.

    Values belong to the case's own site, `site_of_case`: a patient seen at two hospitals is one patient, and
    each hospital still has its own cases of her (ST-01b).
    """

    cluster_of_case: IntArray
    cluster_ids: tuple[str, ...]
    site_of_cluster: IntArray
    site_names: tuple[str, ...]
    positive_cluster: npt.NDArray[np.bool_] | None = None
    grade: str | None = None
    case_sites: IntArray | None = None
    """What `site_of_case` gives; None where every patient was seen at one site."""

    @property
    def site_of_case(self) -> IntArray:
        """The site of each case, from its own row: what values are split by."""
        if self.case_sites is not None:
            return self.case_sites
        sites: IntArray = self.site_of_cluster[self.cluster_of_case]
        return sites

    def within(self, cases: npt.NDArray[np.bool_]) -> Partition:
        """The same patients, each in the stratum of the site of these cases alone.

        For a part of the cohort, such as one site: a patient who was also seen elsewhere counts here with
        the patients of this site. The cases keep their places; patients without a case here keep theirs.
        """
        if self.case_sites is None:
            return self
        sites = self.site_of_cluster.copy()
        chosen = np.flatnonzero(cases)[::-1]
        sites[self.cluster_of_case[chosen]] = self.case_sites[chosen]
        return replace(self, site_of_cluster=sites)

    @property
    def n_cases(self) -> int:
        return int(self.cluster_of_case.size)

    @property
    def n_clusters(self) -> int:
        return len(self.cluster_ids)

    @property
    def n_sites(self) -> int:
        return len(self.site_names)

    @classmethod
    def from_table(
        cls,
        table: pd.DataFrame,
        *,
        cluster: str = "patient_id",
        positive: npt.ArrayLike | None = None,
        grade: str | None = None,
    ) -> Partition:
        """Build from a table with one row a case. Missing `patient_id` column: one patient a case.

        A patient is (dataset, patient_id), so that 'patient 1' of two sets stays two people. A patient seen at
        two sites is resampled with the site of her first case, and the id audit reports her; her cases keep
        their own sites (`site_of_case`). `positive`
        (a truth value a case) puts a patient with any positive case in the positive stratum (US-05).
        """
        n = len(table)
        if cluster in table.columns:
            ids = table[cluster].astype("string")
            blank = (ids.isna() | (ids.str.strip() == "")).to_numpy(dtype=bool)
            if blank.any():
                rows = (np.flatnonzero(blank) + 1).tolist()
                raise UserError(
                    f"{blank.sum()} of {n} rows have an empty {cluster}",
                    where=f"rows {name_rows(rows)}",
                    fix="Fill the ids in: intervals resample patients, so every row needs one (US-02).",
                )
        else:
            ids = (
                pd.Series([str(i) for i in range(n)], dtype="string")
                if "case_id" not in table.columns
                else table["case_id"].astype("string")
            )
        dataset = (
            table["dataset"].astype("string").fillna("")
            if "dataset" in table.columns
            else pd.Series([""] * n, dtype="string")
        )
        dataset_codes, datasets = pd.factorize(dataset)
        id_codes, known_ids = pd.factorize(ids)
        codes, keys = pd.factorize(dataset_codes.astype(np.int64) * max(1, len(known_ids)) + id_codes)
        names_of_dataset = np.asarray(datasets, dtype=object)[keys // max(1, len(known_ids))]
        names_of_patient = np.asarray(known_ids, dtype=object)[keys % max(1, len(known_ids))]
        uniques = list(zip(names_of_dataset, names_of_patient, strict=True))
        first_row = np.full(len(uniques), n, dtype=np.int64)
        np.minimum.at(first_row, codes, np.arange(n))
        site_column = "site" if "site" in table.columns else "dataset" if "dataset" in table.columns else None
        if site_column is None:
            site_codes, site_names = np.zeros(n, dtype=np.int64), ["all"]
        else:
            named = table[site_column].astype("string").fillna(UNKNOWN_SITE)
            site_codes, site_index = pd.factorize(named.to_numpy(), sort=True)
            site_names = [str(name) for name in site_index]
        positive_cluster = None
        if positive is not None:
            values = np.nan_to_num(np.asarray(positive, dtype=float)) > 0
            positive_cluster = np.zeros(len(uniques), dtype=bool)
            np.logical_or.at(positive_cluster, codes, values)
        return cls(
            cluster_of_case=codes.astype(np.int32),
            cluster_ids=tuple(f"{d}/{p}" if d else str(p) for d, p in uniques),
            site_of_cluster=site_codes[first_row].astype(np.int32) if n else np.zeros(0, dtype=np.int32),
            site_names=tuple(site_names),
            positive_cluster=positive_cluster,
            grade=grade,
            case_sites=site_codes.astype(np.int32),
        )

    def strata(self, *, by_site: bool = True, by_class: bool = False) -> IntArray:
        """The resampling stratum of each patient, numbered densely from 0."""
        stratum = (
            self.site_of_cluster.astype(np.int64) if by_site else np.zeros(self.n_clusters, dtype=np.int64)
        )
        if by_class and self.positive_cluster is not None:
            stratum = stratum * 2 + self.positive_cluster
        _, dense = np.unique(stratum, return_inverse=True)
        return dense.astype(np.int32)

    def cases_per_cluster(self) -> IntArray:
        return np.bincount(self.cluster_of_case, minlength=self.n_clusters).astype(np.int32)
