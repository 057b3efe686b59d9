"""The release bundle of a study (US-24): what another team needs to check its numbers, without images.

Every case's scores and probabilities are in it, so that scores and every table can be made again. Masks are known by
their digests, and are in it on request alone. Ids are the cohort's own; of the cohort's other columns it holds those that
the analyses read.
"""
