//! A worker: one thread, the ports it polls, and the subflows it owns.
