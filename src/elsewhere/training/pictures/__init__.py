"""Classification of pictures: inputs on the device, augmentation, one captured training step, several trainings at once."""
