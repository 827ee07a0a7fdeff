"""One row per file, before anything is trained: can it be used? Decoded in processes that may die without harm."""
