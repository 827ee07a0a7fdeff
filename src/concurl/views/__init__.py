"""Two random views of a batch, on the device, each image with its own dice."""
