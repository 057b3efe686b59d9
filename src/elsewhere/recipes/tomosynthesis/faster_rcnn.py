"""The challenge's baseline: Faster R-CNN on single slices (DBT-10)."""

from __future__ import annotations

from elsewhere.boxes import Boxes
from elsewhere.recipes.base import Job, recipes
from elsewhere.recipes.tomosynthesis.settings import inference_of
from elsewhere.recipes.tomosynthesis.volume_detector import (
    Learned,
    Member,
    Networks,
    VolumeDetector,
    train_member,
)


@recipes.register("faster-rcnn")
class FasterRcnn(VolumeDetector):
    """Find lesions on every slice, and hand over the boxes of all slices as they are."""

    title = "Faster R-CNN on slices"
    version = 1
    follows = (
        "The DBTex challenge's baseline: Faster R-CNN with ResNet-50, feature pyramid and COCO weights; benign and cancer "
        "as one class; annotated slices only; all views flipped to the left; the boxes of every slice with a score "
        "above 0.1. Ours flips and zooms at random while training, keeps the epoch that finds most lesions of the "
        "validation part, looks at the breast in tiles, and writes depth 0 where the organisers wrote -1."
    )

    def learn(self, job: Job) -> Learned:
        learned = Learned()
        member = Member(name="detector", train=job.train, validation=job.validation)
        train_member(job, job.settings, member, learned)
        return learned

    def find(self, job: Job, networks: Networks, case: str) -> Boxes:
        from elsewhere.training.detection.volume_inference import predict_volume

        return predict_volume(networks["detector"], job.pixels, case, inference_of(job.settings))
