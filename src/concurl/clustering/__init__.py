"""From a trained network to labels, confidences and scores."""
