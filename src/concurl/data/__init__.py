"""What the user hands over -> uint8 images, safely."""
