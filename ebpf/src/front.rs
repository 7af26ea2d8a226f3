//! The program that passes everything.

use crate::attach::{AttachError, AttachMode, AttachedMode, Attachment};
use crate::object::{FRONT_OBJECT, load, xdp};

/// The program's name in the object and in the kernel.
pub(crate) const PROGRAM: &str = "mpxdp_front";

/// An XDP program on an interface that passes every packet to the kernel.
///
/// A receiver in the kernel behind it pays for the XDP front end as one on `AF_XDP` does, which is
/// what makes the two comparable. Dropping it, or the end of the process, detaches.
#[derive(Debug)]
pub struct Front {
    attachment: Attachment,
}

impl Front {
    /// Attaches the program to `interface`.
    ///
    /// # Errors
    ///
    /// As [`crate::Steering::attach`].
    pub fn attach_pass(interface: &str, mode: AttachMode) -> Result<Self, AttachError> {
        let mut ebpf = load(FRONT_OBJECT, PROGRAM)?;
        let attachment = Attachment::new(xdp(&mut ebpf, PROGRAM)?, interface, mode)?;
        Ok(Self { attachment })
    }

    /// How the program is attached, and in automatic mode why not better.
    pub fn mode(&self) -> &AttachedMode {
        &self.attachment.mode
    }

    /// The kernel's id of the program.
    pub fn program_id(&self) -> u32 {
        self.attachment.program_id
    }
}
