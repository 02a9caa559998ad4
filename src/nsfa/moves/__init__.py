"""One file per conditional. Every move is a function of (state, stats, spec, rng) that changes the state in place."""
