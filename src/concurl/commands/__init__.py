"""One file per verb of the command line, and what verbs share: options.py, checks.py and images.py."""
