"""Recipes that read ultrasound pictures: networks that classify them, and finders of lesions."""
