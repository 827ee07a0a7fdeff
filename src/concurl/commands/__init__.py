"""One file per verb of the command line, and what verbs share: checks.py and images.py."""
