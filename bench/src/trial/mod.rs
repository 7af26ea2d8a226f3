//! One measurement: a receiver at a place, for some seconds.
//!
//! A [`Bench`] is a lab with the programs to measure in it, or two [`Hosts`] without one. A [`Trial`]
//! says what is measured:
//!
//! * the [`Receiver`], `mpxdp recv` or one of the kernel's;
//! * its [`Place`], the CPUs of the sender, the NIC's processing, the workers and the reader;
//! * the number of subflows, over as many links as the lab has;
//! * how long, after a warm-up in which everything is already at full speed.
//!
//! [`Bench::measure`] starts the receiver, sends with the kernel's MPTCP or TCP, waits until the
//! receiver has confirmed every byte, and gives an [`Outcome`]: a [`Round`] for the document, and how
//! it was received. That not all bytes arrived, that the connection was not what was asked for (it
//! fell back, it has fewer subflows) or that a process failed is an error: a benchmark never gets a
//! figure of something else.
//!
//! The sender's own clock bounds what is measured: from the first write after the warm-up until the
//! last one has returned. CPU time is read when the sender says that these moments have come, some
//! milliseconds later at most, so it is first divided by its own span. Where that is not nearly the
//! measured seconds, on a machine with far too much to do, the round's CPU figures are marked as invalid.
//!
//! ```no_run
//! use std::time::Duration;
//! use mpxdp_bench::Interrupt;
//! use mpxdp_bench::lab::Lab;
//! use mpxdp_bench::trial::{Bench, Place, Programs, Receiver, Trial};
//!
//! let interrupt = Interrupt::install()?;
//! let programs = Programs::find()?;
//! let lab = Lab::builder().links(2).mtu(9000).interrupt(&interrupt).up()?;
//! let mut bench = Bench::new(&lab, &programs, &interrupt);
//! let outcome = bench.measure(&Trial {
//!     receiver: Receiver::Mpxdp,
//!     place: Place::parse("worker=1 reader=1", &[0, 1])?,
//!     subflows: 2,
//!     warmup: Duration::from_millis(300),
//!     time: Duration::from_secs(2),
//! })?;
//! println!("{} bit/s", outcome.round.bits_per_second);
//! # Ok::<(), mpxdp_bench::Error>(())
//! ```
//!
//! [`Bench::front_end`] measures what brings packets to a receiver, without one: [`FrontEnd`].
//!
//! Several receivers are measured in turns: [`order`] gives each round another first one.
//!
//! [`Round`]: crate::document::Round

mod bench;
mod front_end;
mod paths;
mod place;
mod programs;
mod receiver;
mod recv_report;
mod sending;
mod site;

pub(crate) use bench::END;
pub use bench::{Bench, Outcome, Trial};
pub use front_end::{FrontEnd, FrontEndRound, RecycleOptions, blast, recycle};
pub use paths::MAX_SUBFLOWS;
pub use place::{Place, order, places};
pub use programs::Programs;
pub use receiver::Receiver;
pub use site::Hosts;
