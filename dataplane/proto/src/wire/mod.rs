//! Headers and options on the wire.
