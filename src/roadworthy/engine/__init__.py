"""Engine: turns a plan into stored readouts, in parallel, resumable at any instant, with the same bits every time."""
