"""Cases are grouped into patients in this module alone.

Standard errors, bootstraps and permutations all take the same `Clusters` (ST-01): the cluster is the
patient, the stratum is the site, and, where a metric asks for it, the patient's class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError, name_rows

IntArray = npt.NDArray[np.int32]
FEWEST_PER_STRATUM = 20
"""Strata with fewer patients are pooled: resampled alone, a stratum of m keeps (m - 1)/m of its variance."""


def pool_small_strata(
    site: npt.ArrayLike, kind: npt.ArrayLike | None = None, *, fewest: int = FEWEST_PER_STRATUM
) -> IntArray:
    """Number strata of patients, the small ones pooled.

    Within each class, the sites with fewer than `fewest` patients become one stratum; where these are still
    fewer together, the smallest of the other sites joins them, until there are enough or all are together
    (ST-01a). Classes are never mixed. So no stratum that is resampled, or centred, by itself is small, unless
    the class is. Pooling adds the variance between the pooled sites: it errs on the wide side.

    Args:
        site: The site of each patient.
        kind: The class of each patient, or None.
        fewest: The fewest patients that make a stratum of their own.

    Returns:
        Strata of patients by site (and by `kind`, the class), the small ones pooled; numbered densely from 0.

    Example:
        >>> pool_small_strata([0] * 30 + [1] * 3 + [2] * 2).tolist()[-6:]
        [0, 0, 0, 0, 0, 0]
    """
    of_site = np.unique(np.asarray(site), return_inverse=True)[1].astype(np.int64)
    classes = np.zeros(of_site.size, dtype=np.int64) if kind is None else np.asarray(kind).astype(np.int64)
    stratum = np.empty(of_site.size, dtype=np.int64)
    n_kinds = int(classes.max(initial=0)) + 1
    for k in range(n_kinds):
        inside = classes == k
        sizes = np.bincount(of_site[inside], minlength=int(of_site.max(initial=-1)) + 1)
        by_size = np.argsort(sizes, kind="stable")
        by_size = by_size[sizes[by_size] > 0]
        together = np.cumsum(sizes[by_size])
        n_pooled = max(int((sizes[by_size] < fewest).sum()), 0)
        if n_pooled and together[n_pooled - 1] < fewest:
            n_pooled = min(int(np.searchsorted(together, fewest)) + 1, by_size.size)
        own = np.arange(sizes.size)
        if n_pooled:
            own[by_size[:n_pooled]] = by_size[:n_pooled].min()
        stratum[inside] = own[of_site[inside]] * n_kinds + k
    return np.unique(stratum, return_inverse=True)[1].astype(np.int32)


CLUSTER_COLUMN = "cluster_id"
"""Optional column of a table of scores: cases with the same value are resampled together, also across
patients.
"""


def merged_clusters(codes: npt.ArrayLike, link: npt.ArrayLike) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Join clusters that share a link, such as patients between whom a near-duplicate was found.

    The joined clusters are numbered by the smallest of their members, so that where nothing is linked the
    numbers, and with them the resamples, are those without links.

    Args:
        codes: The cluster of each case, numbered densely from 0.
        link: A name for each case; cases with the same name belong to one cluster. An empty name links
            nothing.

    Returns:
        The joined cluster of each case, numbered densely from 0, and the first old cluster of each.

    Example:
        >>> merged_clusters([0, 1, 2], ["a", "b", "a"])[0].tolist()
        [0, 1, 0]
    """
    own = np.asarray(codes, dtype=np.int64)
    names = np.asarray(link, dtype=object)
    root = list(range(int(own.max(initial=-1)) + 1))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    seen: dict[str, int] = {}
    for code, name in set(zip(own.tolist(), names.tolist(), strict=True)):
        if not name:
            continue
        a, b = find(seen.setdefault(name, code)), find(code)
        root[max(a, b)] = min(a, b)
    joined = np.array([find(i) for i in range(len(root))], dtype=np.int64)
    first, dense = np.unique(joined, return_inverse=True)
    return dense.astype(np.int64)[own], first.tolist()


UNKNOWN_SITE = "unknown"
"""Site of the cases without a site: they have a row of their own, which is not a hospital."""


@dataclass(frozen=True)
class Clusters:
    """The mapping of cases to patients and sites.

    Values belong to the case's own site, `site_of_case`: a patient seen at two hospitals is one patient, and
    each hospital still has its own cases of her (ST-01b).

    Args:
        cluster_of_case: Number of the patient of each case.
        cluster_ids: Name of each patient.
        site_of_cluster: Number of the site in whose stratum each patient is resampled.
        site_names: Name of each site.
        positive_cluster: Whether each patient has a positive case; None for a task without classes.
        grade: Grade of the patient ids; None where it is not known.
        case_order: The cases by patient and, within a patient, by case id; None for the order in which they
            stand.
        case_sites: Number of the site of each case; None where every patient was seen at one site.

    Example:
        >>> table = pd.DataFrame({"case_id": ["a", "b", "c"], "patient_id": ["p", "p", "q"]})
        >>> Clusters.from_table(table).cluster_of_case.tolist()
        [0, 0, 1]
    """

    cluster_of_case: IntArray
    cluster_ids: tuple[str, ...]
    site_of_cluster: IntArray
    site_names: tuple[str, ...]
    positive_cluster: npt.NDArray[np.bool_] | None = None
    grade: str | None = None
    case_order: npt.NDArray[np.int64] | None = None
    case_sites: IntArray | None = None

    @property
    def site_of_case(self) -> IntArray:
        """The site of each case, from its own row: what values are split by."""
        if self.case_sites is not None:
            return self.case_sites
        sites: IntArray = self.site_of_cluster[self.cluster_of_case]
        return sites

    def within(self, cases: npt.NDArray[np.bool_]) -> Clusters:
        """Keep the sites of some of the cases.

        For a part of the cohort, such as one site: a patient who was also seen elsewhere counts here with
        the patients of this site (of several, the site of most of these cases). The cases keep their places;
        patients without a case here keep theirs.

        Args:
            cases: Which cases are kept.

        Returns:
            The same patients, each in the stratum of the site of these cases alone.
        """
        if self.case_sites is None:
            return self
        of_these = self.cluster_of_case[cases]
        sites = self.site_of_cluster.copy()
        common = _most_common(of_these, self.case_sites[cases], n_clusters=self.n_clusters)
        sites[of_these] = common[of_these]
        return replace(self, site_of_cluster=sites)

    @property
    def n_cases(self) -> int:
        """How many cases there are."""
        return int(self.cluster_of_case.size)

    @property
    def n_clusters(self) -> int:
        """How many patients there are."""
        return len(self.cluster_ids)

    @property
    def n_sites(self) -> int:
        """How many sites there are."""
        return len(self.site_names)

    @classmethod
    def from_table(
        cls,
        table: pd.DataFrame,
        *,
        cluster: str = "patient_id",
        positive: npt.ArrayLike | None = None,
        grade: str | None = None,
    ) -> Clusters:
        """Build clusters from a table with one row per case. Without a `patient_id` column each case is a
        patient.

        A patient is (dataset, patient_id), so that 'patient 1' of two sets stays two people. Patients are
        numbered by sorted (dataset, patient_id) and never by where they stand in the table, so that the order
        of the rows changes no resample (ST-01b). A patient seen at several sites is resampled with the site
        of most of her cases (of those, the first by name), and the id audit reports her; her cases keep their
        own sites (`site_of_case`). A patient with any positive case is in the positive stratum (US-05).

        Args:
            table: One row per case; `dataset`, `site`, `case_id` and `cluster_id` are used where they are
                there.
            cluster: The column that names patients.
            positive: The outcome of each case, above 0 for a positive one; None for a task without classes.
            grade: The grade of the patient ids; None where it is not known.

        Returns:
            The clusters.

        Raises:
            UserError: If a row has no patient id, which intervals need (US-02).
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
                    fix="Fill the ids in: intervals resample patients, so every row needs one.",
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
        dataset_codes, datasets = pd.factorize(dataset, sort=True)
        id_codes, known_ids = pd.factorize(ids, sort=True)
        keys, codes = np.unique(
            dataset_codes.astype(np.int64) * max(1, len(known_ids)) + id_codes, return_inverse=True
        )
        names_of_dataset = np.asarray(datasets, dtype=object)[keys // max(1, len(known_ids))]
        names_of_patient = np.asarray(known_ids, dtype=object)[keys % max(1, len(known_ids))]
        uniques = list(zip(names_of_dataset, names_of_patient, strict=True))
        if CLUSTER_COLUMN in table.columns and cluster == "patient_id":
            codes, first = merged_clusters(
                codes, table[CLUSTER_COLUMN].astype("string").fillna("").to_numpy()
            )
            uniques = [uniques[i] for i in first]
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
            site_of_cluster=_most_common(codes, site_codes, n_clusters=len(uniques)),
            site_names=tuple(site_names),
            positive_cluster=positive_cluster,
            grade=grade,
            case_order=np.lexsort((_id_numbers(table), codes)).astype(np.int64),
            case_sites=site_codes.astype(np.int32),
        )

    def strata(
        self,
        *,
        by_site: bool = True,
        by_class: bool = False,
        taking_part: npt.NDArray[np.bool_] | None = None,
    ) -> IntArray:
        """Number the resampling strata of the patients.

        With `taking_part` (a mask of patients), sizes count these alone, and theirs are the strata returned.

        Args:
            by_site: Whether strata are divided by site.
            by_class: Whether strata are divided by class as well.
            taking_part: The patients that take part.

        Returns:
            The resampling stratum of each patient, numbered densely from 0; small strata are pooled (ST-01a).
        """
        chosen = slice(None) if taking_part is None else taking_part
        site = self.site_of_cluster[chosen] if by_site else np.zeros_like(self.site_of_cluster[chosen])
        kind = None
        if by_class and self.positive_cluster is not None:
            kind = self.positive_cluster[chosen]
        return pool_small_strata(site, kind)

    def rarer_class(self) -> npt.NDArray[np.bool_] | None:
        """Find the patients of the class that fewer patients have.

        Returns:
            A mask of patients; None without classes, or with one alone.
        """
        if self.positive_cluster is None or self.positive_cluster.all() or not self.positive_cluster.any():
            return None
        few = 2 * int(self.positive_cluster.sum()) <= self.n_clusters
        return self.positive_cluster if few else ~self.positive_cluster

    def degrees_of_freedom(
        self, *, by_site: bool = True, of_class: npt.NDArray[np.bool_] | None = None
    ) -> int:
        """Count the degrees of freedom of a bootstrap's standard error.

        With `of_class` (a mask), of these patients alone: a metric that is resampled within classes is no
        surer than its rarer class.

        Args:
            by_site: Whether strata are divided by site.
            of_class: The patients of one class, or None for all.

        Returns:
            Patients - strata of sites (at least 1): for the t quantile of a bootstrap's standard error.
        """
        stratum = self.strata(by_site=by_site, taking_part=of_class)
        return max(1, stratum.size - int(stratum.max(initial=0)) - 1)

    def cases_by_patient(self) -> npt.NDArray[np.int64]:
        """List the cases patient by patient, in an order that does not depend on the rows where ids are
        known.

        Returns:
            The numbers of the cases.
        """
        if self.case_order is not None:
            return self.case_order
        return np.argsort(self.cluster_of_case, kind="stable").astype(np.int64)

    def cases_per_cluster(self) -> IntArray:
        """Count the cases of each patient.

        Returns:
            One number per patient.
        """
        return np.bincount(self.cluster_of_case, minlength=self.n_clusters).astype(np.int32)


def _id_numbers(table: pd.DataFrame) -> npt.NDArray[np.int64]:
    """The position of each row's case id among the sorted ids; all 0 in a table without the column."""
    if "case_id" not in table.columns:
        return np.zeros(len(table), dtype=np.int64)
    return np.asarray(pd.factorize(table["case_id"].astype("string"), sort=True)[0], dtype=np.int64)


def _most_common(
    cluster_of_case: npt.NDArray[np.integer], site_of_case: npt.NDArray[np.integer], *, n_clusters: int
) -> IntArray:
    """The site of most cases of each patient; of equally many, the lowest number."""
    n_sites = int(site_of_case.max(initial=0)) + 1
    pairs, count = np.unique(cluster_of_case.astype(np.int64) * n_sites + site_of_case, return_counts=True)
    cluster, site = pairs // n_sites, pairs % n_sites
    order = np.lexsort((site, -count, cluster))
    out = np.zeros(n_clusters, dtype=np.int32)
    first = np.ones(order.size, dtype=bool)
    first[1:] = cluster[order][1:] != cluster[order][:-1]
    out[cluster[order][first]] = site[order][first]
    return out
