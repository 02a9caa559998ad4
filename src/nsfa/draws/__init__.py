"""Where kept draws are stored, and how they leave for other programs."""
