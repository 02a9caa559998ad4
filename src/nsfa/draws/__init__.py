"""Where kept draws are stored."""
