//! Runs mpxdp in guests under qemu, with kernels and NIC drivers that the host does not have.
//!
//! The same binary is both ends of it. On the host it gets kernels, packs them up with the programs
//! of this workspace, boots guests and collects what they say. In a guest it is the first process:
//! it sets the network up, runs the checks and powers off.
//!
//! [`plan`] is the table of what runs where; everything else is how.

mod error;
mod guest;
mod host;
mod plan;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        guest::main();
    }
    host::main()
}
