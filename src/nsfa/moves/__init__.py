"""One file per conditional: functions of (state, samples, spec, rng) that change the first two in place."""
