//! The steering program, loaded and attached.

use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use aya::Ebpf;
use aya::programs::{TestRun as _, TestRunOptions, Xdp};

use crate::attach::{AttachError, AttachMode, AttachedMode, Attachment};
use crate::object::{LoadError, STEER_OBJECT, describe, load, xdp};
use crate::tables::Tables;

/// The program's name in the object and in the kernel.
pub(crate) const PROGRAM: &str = "mpxdp_steer";

/// The steering program in the kernel, attached to nothing: for filling its tables before the first
/// packet, for tests and for measuring it alone.
#[derive(Debug)]
pub struct Program {
    ebpf: Ebpf,
    tables: Tables,
}

impl Program {
    /// Brings the program and its empty tables into the kernel.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn load() -> Result<Self, LoadError> {
        let mut ebpf = load(STEER_OBJECT, PROGRAM)?;
        let tables = Tables::take_from(&mut ebpf, PROGRAM)?;
        Ok(Self { ebpf, tables })
    }

    /// The program's tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The program's tables, to change them.
    pub fn tables_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// Attaches the program to `interface`.
    ///
    /// # Errors
    ///
    /// As [`Steering::attach`]; the loaded program is gone then.
    pub fn attach(mut self, interface: &str, mode: AttachMode) -> Result<Steering, AttachError> {
        let attachment = Attachment::new(xdp(&mut self.ebpf, PROGRAM)?, interface, mode)?;
        Ok(Steering { attachment, tables: self.tables })
    }

    /// Runs the program `repeat` times on a frame that no NIC received, on receive queue 0
    /// (`BPF_PROG_TEST_RUN`). The frame goes nowhere; the counters count.
    ///
    /// # Errors
    ///
    /// The system's: `EINVAL` for a frame below the 14 octets of an Ethernet header or longer than
    /// the kernel allows.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
        let program = self.ebpf.program(PROGRAM).ok_or(io::ErrorKind::NotFound)?;
        let xdp: &Xdp = program.try_into().map_err(io::Error::other)?;
        let options = TestRunOptions { data_in: Some(frame), repeat, ..TestRunOptions::new() };
        let result = xdp.test_run(options).map_err(|error| io::Error::other(describe(&error)))?;
        let action = Action::from_code(result.return_value).ok_or_else(|| {
            io::Error::other(format!("the program returned {}", result.return_value))
        })?;
        Ok(TestRun { action, duration: result.duration })
    }
}

/// What the kernel does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Drops it, as an error of the program.
    Aborted,
    /// Drops it.
    Drop,
    /// Handles it.
    Pass,
    /// Sends it back out of the interface.
    Transmit,
    /// Hands it to the socket of its queue.
    Redirect,
}

impl Action {
    const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Aborted),
            1 => Some(Self::Drop),
            2 => Some(Self::Pass),
            3 => Some(Self::Transmit),
            4 => Some(Self::Redirect),
            _ => None,
        }
    }
}

/// The outcome of [`Program::test_run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// What the program returned the last time.
    pub action: Action,
    /// The mean duration of one run, in whole nanoseconds.
    pub duration: Duration,
}

/// The steering program on an interface, with its [`Tables`] (by `Deref`).
///
/// Dropping it detaches the program and frees the tables; so does the end of the process, however
/// it comes. (A child process that another thread is just starting has a copy of the descriptor
/// that the program hangs on, until the child runs its own program.)
#[derive(Debug)]
pub struct Steering {
    // Fields drop in this order: first no more packets, then the tables.
    attachment: Attachment,
    tables: Tables,
}

impl Steering {
    /// Loads the program and attaches it to `interface`, all tables empty: every packet passes.
    ///
    /// # Errors
    ///
    /// [`AttachError`], with what to do about it in its text. Nothing is left attached then.
    pub fn attach(interface: &str, mode: AttachMode) -> Result<Self, AttachError> {
        Program::load()?.attach(interface, mode)
    }

    /// How the program is attached, and in automatic mode why not better.
    pub fn mode(&self) -> &AttachedMode {
        &self.attachment.mode
    }

    /// The interface, by the name given.
    pub fn interface(&self) -> &str {
        &self.attachment.interface
    }

    /// The kernel's index of the interface.
    pub fn interface_index(&self) -> u32 {
        self.attachment.index
    }

    /// The kernel's id of the program, as `bpftool prog` shows it.
    pub fn program_id(&self) -> u32 {
        self.attachment.program_id
    }
}

impl Deref for Steering {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.tables
    }
}

impl DerefMut for Steering {
    fn deref_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }
}

/// The engine keeps it behind a lock and changes listeners from any thread.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Steering>();
    is_send_and_sync::<Program>();
};
