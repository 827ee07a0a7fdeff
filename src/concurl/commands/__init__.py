"""One file per verb of the command line, and what verbs share: options.py, refusals.py and images.py."""
