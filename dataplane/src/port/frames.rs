//! The bookkeeping of a port's buffers, checked at each step in debug builds.

use std::sync::atomic::{AtomicU32, Ordering};

/// A number that tells the tokens of one port from those of another.
pub(super) fn next_port_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Who may touch a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The NIC, to receive into it: the fill ring or the receive ring.
    Receive,
    /// The holder of a token.
    Held,
    /// The NIC, to send from it: the transmit ring or the completion ring.
    Transmit,
    /// The port: free to be allocated.
    Free,
}

/// Counts the buffers by owner; in debug builds it also knows the owner of each and panics on a
/// step that the buffer's owner could not have made, which is how a buffer given out twice shows.
#[derive(Debug)]
pub(super) struct Ledger {
    receive: usize,
    held: usize,
    transmit: usize,
    free: usize,
    #[cfg(debug_assertions)]
    owners: Vec<Owner>,
}

impl Ledger {
    /// `receive` buffers with the NIC, then `free` ones.
    pub(super) fn new(receive: usize, free: usize) -> Self {
        Self {
            receive,
            held: 0,
            transmit: 0,
            free,
            #[cfg(debug_assertions)]
            owners: std::iter::repeat_n(Owner::Receive, receive)
                .chain(std::iter::repeat_n(Owner::Free, free))
                .collect(),
        }
    }

    /// Buffer number `index` goes from one owner to another.
    #[inline]
    pub(super) fn pass(&mut self, index: usize, from: Owner, to: Owner) {
        #[cfg(debug_assertions)]
        {
            let owner = std::mem::replace(&mut self.owners[index], to);
            assert_eq!(owner, from, "buffer {index} changed hands while another owned it");
        }
        let _ = index;
        *self.count(from) -= 1;
        *self.count(to) += 1;
    }

    pub(super) const fn receive(&self) -> usize {
        self.receive
    }

    pub(super) const fn held(&self) -> usize {
        self.held
    }

    pub(super) const fn transmit(&self) -> usize {
        self.transmit
    }

    pub(super) const fn free(&self) -> usize {
        self.free
    }

    #[inline]
    const fn count(&mut self, owner: Owner) -> &mut usize {
        match owner {
            Owner::Receive => &mut self.receive,
            Owner::Held => &mut self.held,
            Owner::Transmit => &mut self.transmit,
            Owner::Free => &mut self.free,
        }
    }

    /// Panics in debug builds if a token was dropped. For the `Drop` of a port.
    pub(super) fn check_returned(&self) {
        debug_assert!(
            self.held == 0 || std::thread::panicking(),
            "the port closes while {} of its frames were never given back",
            self.held
        );
    }
}
