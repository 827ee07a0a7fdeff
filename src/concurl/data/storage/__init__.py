"""Images kept as uint8: the packed copy on disk, and the way from it to a batch on the device."""
