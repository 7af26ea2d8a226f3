//! The XDP program that steers packets into `AF_XDP` sockets, and its loader.
//!
//! [`Steering`] is the program attached to an interface, with the tables that say which TCP
//! segments are ours: [listeners](Tables::listen), single [connections](Tables::add_flow) and the
//! [sockets](Tables::bind_queue) of the receive queues. What is not ours, and every packet that is
//! damaged, fragmented or not TCP, goes on to the kernel. [`Tables::counters`] tells how many
//! packets met each [`Verdict`].
//!
//! [`Front`] is the program that passes everything; benchmarks put it before the kernel's own
//! receiver.
//!
//! Both programs are C, in `bpf/`. Their objects are committed in `prebuilt/`, so that nobody but
//! who changes them needs a BPF compiler.
//!
//! ```no_run
//! use mpxdp_ebpf::{AttachMode, Steering};
//!
//! let mut steering = Steering::attach("eth0", AttachMode::Auto)?;
//! steering.set_local_addresses(&["192.0.2.1".parse()?])?;
//! steering.listen("0.0.0.0:5001".parse()?)?;
//! println!("program {} in {} mode", steering.program_id(), steering.mode());
//! for (verdict, packets) in steering.counters()?.iter() {
//!     println!("{verdict}: {packets}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attach;
mod front;
mod interface;
mod object;
mod steering;
mod tables;
mod verdict;

pub use attach::{AttachError, AttachMode, AttachedMode};
pub use front::Front;
pub use interface::{AttachedProgram, Hook, attached_programs};
pub use object::{FRONT_OBJECT, LoadError, STEER_OBJECT};
pub use steering::{Action, Program, Steering, TestRun};
pub use tables::{MAX_QUEUES, TableError, Tables};
pub use verdict::{Counters, Verdict};

#[cfg(target_endian = "big")]
compile_error!("the committed BPF objects are little-endian");
