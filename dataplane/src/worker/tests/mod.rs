//! The whole receive path over memory ports, in virtual time.

mod addresses;
mod checksums;
mod floods;
mod flows;
mod joins;
mod limits;
mod removal;
mod streams;
mod subflows;
mod world;
