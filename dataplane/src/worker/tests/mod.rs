//! The whole receive path over memory ports, in virtual time.

mod flows;
mod limits;
mod streams;
mod world;
